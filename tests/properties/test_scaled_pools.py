"""Server pools that grow and shrink: nothing is lost, fast-forward changes nothing."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.combined.parts import RULES
from sim.commands.running.simulate import simulate_measured, summary_of
from sim.des.servers import RunOptions
from sim.runlog.servers import FleetLog, ReplicaState
from sim.scenario.build import build
from sim.scenario.load import load_scenario_data

SCHEDULERS = {
    "sglang": {"family": "sglang", "max_total_tokens": 3000, "num_reserved_decode_tokens": 16},
    "vllm": {"family": "vllm", "num_gpu_blocks_override": 200, "max_model_len": 1000},
}


@st.composite
def autoscales(draw: st.DrawFn) -> dict | None:
    """A section with times of milliseconds; or none."""
    if draw(st.integers(0, 3)) == 0:
        return None
    at_s = st.sampled_from((0.011, 0.05, 0.17, 0.4))
    times = [0, *sorted(set(draw(st.lists(at_s, max_size=4))))]
    steps = [{"at_s": each, "replicas": draw(st.integers(1, 3))} for each in times]
    timetable = {"kind": "schedule", "steps": steps}
    return {
        "rule": draw(st.sampled_from((*RULES, timetable, timetable))),
        "max_replicas": draw(st.integers(2, 3)),
        "interval_s": 0.02,
        "sample_s": draw(st.sampled_from((0.005, 0.02))),
        "startup_s": draw(st.sampled_from((0, 0.001, 0.07))),
        "shrink": {"window_s": draw(st.sampled_from((0, 0.1)))},
    }


@st.composite
def scenarios(draw: st.DrawFn, family: str) -> dict:
    disaggregated = draw(st.integers(0, 2)) > 0
    roles = ("prefill", "decode") if disaggregated else ("both", "both")
    pools = {}
    for name, role in zip(("one", "two"), roles, strict=True):
        pools[name] = {"role": role, "replicas": draw(st.integers(1, 2))}
        section = draw(autoscales())
        if section is not None:
            pools[name]["autoscale"] = section
    requests = {
        "kind": "synthetic",
        "num_requests": draw(st.integers(1, 30)),
        "arrivals": {"kind": "poisson", "rate_rps": draw(st.sampled_from((20, 60, 300)))},
        "prompt_tokens": {"kind": "uniform", "min": 1, "max": 400},
        "output_tokens": {"kind": "uniform", "min": 1, "max": 30},
    }
    data = {
        "name": "disaggregated",
        "seed": draw(st.integers(0, 3)),
        "latency": {
            "kind": "linear",
            "step_s": 0.005,
            "per_prefill_token_s": 5e-5,
            "per_decode_request_s": 1e-4,
            "per_context_token_s": draw(st.sampled_from((0, 1e-6))),
            "dp": draw(st.sampled_from((1, 1, 2))),
        },
        "workload": requests,
        "router": draw(st.sampled_from(("round-robin", "least-loaded", "prefix-aware"))),
        "slo": {"ttft_ms": 20, "tpot_ms": 8},
        "scheduler": SCHEDULERS[family],
        "pools": pools,
    }
    if draw(st.booleans()):
        requests["give_up"] = {"share": 0.4, "after_s": {"kind": "exponential", "mean": 0.1}}
    if requests["num_requests"] > 9:
        for edge in draw(
            st.sampled_from(([], [], ["warmup"], ["cooldown"], ["warmup", "cooldown"]))
        ):
            data[edge] = {"requests": 3}
    if disaggregated:
        data["transfer"] = {"bandwidth_gb_s": 1, "latency_s": 0.002, "bytes_per_token": 20_000}
        if family == "vllm" and draw(st.booleans()):
            data["transfer"]["decode_server_chosen"] = "at_arrival"
    return data


def run(data, *, fast_forward):
    with TemporaryDirectory() as folder:
        decisions = Path(folder) / "decisions.jsonl"
        options = RunOptions(fast_forward=fast_forward, decisions=decisions)
        built = build(load_scenario_data(data))
        log = simulate_measured(built, options)
        summary = summary_of(log, built.loaded.scenario)
        return log, (decisions.read_text(encoding="utf-8"), summary)


@pytest.mark.parametrize("family", sorted(SCHEDULERS))
@given(data=st.data())
def test_scaled_pools_end_all_requests_alike_with_and_without_fast_forward(family, data):
    """INV-1, INV-12 and INV-21 for pools; requests of the log are those of servers that were up.

    Every figure is the same, also those of a part of the run.
    """
    scenario = data.draw(scenarios(family))
    (log, found), (_, single) = (run(scenario, fast_forward=how) for how in (True, False))
    assert found == single
    requests = log.requests
    assert len(requests.rid) == scenario["workload"]["num_requests"]
    assert set(requests.status) <= {"finished", "rejected", "aborted"}
    fleet = FleetLog.of(log.meta)
    assert (fleet is None) == all("autoscale" not in pool for pool in scenario["pools"].values())
    if fleet is None:
        return
    serving = fleet.spans([ReplicaState.UP, ReplicaState.DRAINING], 1 << 62)
    # A server's first rank stands for it.
    num_ranks = scenario["latency"]["dp"]
    servers = requests.replica // num_ranks * num_ranks
    for replica, finish_ns in zip(servers, requests.finish_ns, strict=True):
        assert finish_ns < 0 or any(
            span.replica == replica and span.begin_ns <= finish_ns <= span.end_ns
            for span in serving
        )
