"""Power of simulated servers: the energy is what each moment's watts add up to."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.commands.running.simulate import run_built
from sim.metrics.power import ServerPower, Work
from sim.metrics.summary import summarise
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

POWER = ServerPower(
    idle_w=100,
    limit_w=700,
    joules={"decode_s": 400, "decode_doublings_s": 30, "prefill_s": 650},
)
WORK = ServerPower(
    idle_w=100,
    limit_w=700,
    joules={"busy_s": 150, "steps": 1.5, "prefill_tokens": 0.01, "decode_rows": 0.02,
            "context_tokens": 0.0002, "step_doublings": 0.1},
)  # fmt: skip
SCENARIO = {
    "name": "power",
    "latency": {
        "kind": "linear",
        "step_s": 0.01,
        "per_prefill_token_s": 0.00005,
        "per_decode_request_s": 0.0002,
        "per_context_token_s": 0.0,
    },
    "workload": {
        "kind": "synthetic",
        "num_requests": 60,
        "arrivals": {"kind": "poisson", "rate_rps": 8},
        "prompt_tokens": {"kind": "uniform", "min": 50, "max": 900},
        "output_tokens": {"kind": "uniform", "min": 1, "max": 120},
    },
    "scheduler": {"page_size": 1, "max_total_tokens": 30000},
}


def run_of(power=POWER, fast_forward=True, **overrides):
    text = json.dumps({**SCENARIO, **overrides})
    log = run_built(build(load_scenario_text(text)), fast_forward=fast_forward)
    return replace(log, meta={**log.meta, "power": [power._asdict()]})


def watts_of(power, steps, row):
    """During a step, by its kind and its work; written anew, so that it can be wrong."""
    rows, tokens = int(steps.num_decode_rows[row]), int(steps.num_prefill_tokens[row])
    seconds = int(steps.t_end_ns[row] - steps.t_start_ns[row]) / 1e9
    context = int(steps.num_context_tokens[row] - steps.num_cached_tokens[row]) - tokens
    each = dict.fromkeys(("decode_s", "decode_doublings_s", "prefill_s"), 0.0)
    if tokens:
        each["prefill_s"] = 1.0
    else:
        each |= {"decode_s": 1.0, "decode_doublings_s": np.log2(rows)}
    each |= {
        "busy_s": 1.0,
        "steps": 1 / seconds,
        "step_doublings": np.log2(1 + rows + tokens) / seconds,
        "prefill_tokens": tokens / seconds,
        "decode_rows": rows / seconds,
        "context_tokens": context / seconds,
    }
    return min(sum(joules * each[name] for name, joules in power.joules.items()), power.limit_w)


def energy_j_of_moments(log, power, num_servers, begin_ns, end_ns):
    """The watts of all servers at each moment that anything changes, times how long they last."""
    steps, total = log.steps, 0.0
    for server in range(num_servers):
        mine = steps.rows(steps.replica == server)
        bounds = np.concatenate(([begin_ns, end_ns], mine.t_start_ns, mine.t_end_ns))
        moments = np.unique(bounds[(bounds >= begin_ns) & (bounds <= end_ns)])
        for since_ns, until_ns in pairwise(moments):
            running = np.flatnonzero((mine.t_start_ns <= since_ns) & (mine.t_end_ns >= until_ns))
            watts = watts_of(power, mine, running[0]) if len(running) else power.idle_w
            total += watts * (until_ns - since_ns) / 1e9
    return total


@given(
    replicas=st.integers(1, 3),
    seed=st.integers(0, 5),
    idle_w=st.floats(0, 500),
    limit_w=st.floats(250, 900),
    form=st.sampled_from([POWER, WORK]),
)
def test_energy_is_the_sum_of_watts_times_time(replicas, seed, idle_w, limit_w, form):
    power = form._replace(idle_w=idle_w, limit_w=limit_w)
    log = run_of(power, fast_forward=False, replicas=replicas, seed=seed)
    summary, requests = summarise(log), log.requests
    span = int(requests.arrival_ns.min()), int(requests.finish_ns.max())
    energy_j = energy_j_of_moments(log, power, replicas, *span)
    assert summary["energy_kwh"] == pytest.approx(energy_j / 3.6e6, rel=1e-9)
    assert summary["mean_power_w"] == pytest.approx(energy_j / summary["duration"], rel=1e-9)
    tokens = summary["total_output_tokens"]
    assert summary["joules_per_output_token"] == pytest.approx(energy_j / tokens, rel=1e-9)
    tokens += summary["total_input_tokens"]
    assert summary["joules_per_token"] == pytest.approx(energy_j / tokens, rel=1e-9)


@pytest.mark.parametrize("power", [POWER, WORK])
def test_steps_that_are_passed_at_once_draw_the_same(power):
    found = [summarise(run_of(power, fast_forward=fast)) for fast in (True, False)]
    for name in ("mean_power_w", "energy_kwh", "joules_per_token"):
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-9), name


def test_servers_that_draw_the_same_at_all_times_draw_it_in_the_mean():
    always_w = POWER._replace(joules={"busy_s": 100})
    assert summarise(run_of(always_w, replicas=2))["mean_power_w"] == pytest.approx(200)


def test_window_has_the_power_of_its_time():
    """Steps before and after it do not count."""
    edges = {"warmup": {"duration_s": 2.0}, "cooldown": {"duration_s": 3.0}}
    log = run_of(fast_forward=False, **edges)
    energy_j = energy_j_of_moments(log, POWER, 1, *log.window_ns)
    assert summarise(log)["energy_kwh"] == pytest.approx(energy_j / 3.6e6, rel=1e-9)


def test_each_pool_draws_its_own_power(pools_log):
    log = pools_log()
    nothing = ServerPower(0, 0, {})
    parts = []
    for number in range(len(log.pools)):
        power = [nothing._asdict() for _ in log.pools]
        power[number] = POWER._asdict()
        parts.append(summarise(replace(log, meta={**log.meta, "power": power}))["energy_kwh"])
    every = [POWER._asdict() for _ in log.pools]
    whole = summarise(replace(log, meta={**log.meta, "power": every}))["energy_kwh"]
    assert all(part > 0 for part in parts)
    assert sum(parts) == pytest.approx(whole)


def test_power_that_nobody_measured_is_not_in_the_summary():
    log = run_of()
    meta = {key: value for key, value in log.meta.items() if key != "power"}
    assert not {"mean_power_w", "energy_kwh"} & summarise(replace(log, meta=meta)).keys()


def test_limit_holds_for_every_step():
    rows, tokens = np.array([1, 2, 8, 4096, 3]), np.array([0, 0, 0, 0, 9])
    work = Work(np.full(5, 0.1), np.ones(5, dtype=np.int64), rows, tokens, rows * 100)
    assert POWER.energy_j(work).tolist() == pytest.approx([40, 43, 49, 70, 65])
