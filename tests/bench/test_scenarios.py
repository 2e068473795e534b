"""The scenarios of the benchmarks can be built, and small ones run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import parts_of_run
from bench.axes import axes
from bench.limit import Parts, cells
from bench.places import SCENARIOS
from bench.races import STEP_TIMES, agents_race, aisimulate_races, drafts_race, server_races
from bench.rules import comparisons
from bench.scaling import measure_growth
from sim.latency.config import LinearLatencyConfig
from sim.scenario.load import load_scenario, load_scenario_text
from sim.workload.config import ClientsConfig

ENGINE, CONCURRENCY = "--extra-engine-args", "--replay-concurrency"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_scenarios_are_valid(path):
    """As the user's command line reads them."""
    assert load_scenario(path, []).scenario.name == f"bench-{path.stem}"


@pytest.mark.parametrize("axis", axes(), ids=lambda axis: axis.name)
def test_axes_every_size_is_valid(axis):
    """And what is subtracted from it."""
    for size in axis.sizes:
        for scenario in (axis.scenario, axis.scenario_without):
            assert scenario is None or load_scenario_text(scenario(size), []).scenario


def test_measure_growth_of_a_burst_has_a_cost_for_each_size():
    """In milliseconds a request."""
    burst = next(axis for axis in axes() if axis.name.startswith("queue"))
    growth = measure_growth(replace(burst, sizes=(4, 16)), repeats=1)
    assert growth.sizes == [4, 16]
    assert all(0.01 < cost_ms < 1_000 for cost_ms in growth.costs)


def test_comparisons_overrides_are_valid():
    """Each is a scenario of ours."""
    for comparison in comparisons():
        assert load_scenario(SCENARIOS / "agreement.yaml", list(comparison.ours)).scenario


@pytest.mark.parametrize("name", STEP_TIMES)
def test_step_times_are_those_of_the_scenario(name):
    """All simulators race with the same hardware."""
    latency = load_scenario(SCENARIOS / f"{name}.yaml", []).scenario.latency
    assert isinstance(latency, LinearLatencyConfig)
    step_times = STEP_TIMES[name]
    given = dict(zip(step_times[::2], map(float, step_times[1::2]), strict=True))
    assert given == {
        "--step-s": latency.step_s,
        "--prefill-token-s": latency.per_prefill_token_s,
        "--decode-row-s": latency.per_decode_request_s,
        "--context-token-s": latency.per_context_token_s,
    }


def option(command, name):
    """The value after an option of a command."""
    return command[command.index(name) + 1]


def test_races_give_all_simulators_the_same_settings():
    """Pool, pages, slots and requests of our scenario, in both versions' command lines."""
    for race in aisimulate_races(Path("turns.jsonl"), Path("times.npz")):
        scenario = load_scenario(Path(race.ours[2]), []).scenario
        scheduler, workload = scenario.scheduler, scenario.workload
        of_vllm = scheduler.family == "vllm"
        older, newer = race.theirs.values()
        call = json.loads(newer[-1])
        settings = [call["extra_engine_args"]["engine"], json.loads(option(older, ENGINE))]
        for engine in settings:
            assert engine["max_num_batched_tokens"] == 8192
            if of_vllm:
                assert engine["block_size"] == scheduler.block_size
                assert engine["num_gpu_blocks"] == scheduler.num_gpu_blocks_override - 1
                assert engine["max_num_seqs"] == scheduler.max_num_seqs
            else:
                assert engine["block_size"] == scheduler.page_size
                assert engine["num_gpu_blocks"] == scheduler.max_total_tokens
                assert engine["max_num_seqs"] == scheduler.max_running_requests
        assert call["replay_concurrency"] == int(option(older, CONCURRENCY)) == workload.clients
        if isinstance(workload, ClientsConfig):
            assert call["request_count"] == workload.clients * workload.requests_per_client
            assert call["request_count"] == race.num_requests
            assert call["output_tokens"] == workload.output_tokens.value
        else:
            assert race.num_requests == workload.sessions * workload.turns.value


def scenario_and_call(race):
    """Our scenario, and the arguments that Dynamo 1.6.1 is called with."""
    (newer,) = race.theirs.values()
    return load_scenario(Path(race.ours[2]), race.ours[4::2]), json.loads(newer[-1])


def test_races_of_features_have_the_same_servers(tmp_path):
    """Servers apart and their links, ranks, drafts, and agents at a time."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}\n')
    times = Path("times.npz")
    apart, ranks = (scenario_and_call(race) for race in server_races(trace, 1, times))
    loaded, call = apart
    for role in ("prefill", "decode"):
        engine = call[f"{role}_engine_args"]["engine"]
        assert engine["worker_type"] == role
        assert call[f"num_{role}_workers"] == loaded.pools[role].scenario.replicas
        assert engine["kv_transfer_bandwidth"] == loaded.scenario.transfer.bandwidth_gb_s
        assert engine["kv_transfer_bytes_per_token"] == loaded.scenario.transfer.bytes_per_token
    loaded, call = ranks
    assert call["extra_engine_args"]["dp_size"] == loaded.scenario.latency.dp == 4

    loaded, call = scenario_and_call(drafts_race(times))
    engine = call["extra_engine_args"]["engine"]
    assert engine["aic_nextn"] == loaded.scenario.scheduler.speculative_num_steps
    rates = [float(rate) for rate in engine["aic_nextn_accept_rates"].split(",")]
    assert rates == [*loaded.scenario.acceptance.by_position]

    race = agents_race(Path("agents.jsonl"), times)
    loaded, call = scenario_and_call(race)
    workload = loaded.scenario.workload
    assert call["replay_concurrency"] == workload.clients
    assert race.num_requests == workload.sessions * workload.turns.value


def test_parts_of_a_run_add_up(monkeypatch, capsys):
    """What is written without deciding anything takes less than what is simulated."""
    scenario = SCENARIOS / "long-decode.yaml"
    monkeypatch.setattr("sys.argv", ["parts", str(scenario), "workload.requests_per_client=1"])
    parts_of_run.main()
    parts = Parts(**json.loads(capsys.readouterr().out))
    assert 0 < parts.write < parts.simulate
    assert parts.run - parts.limit == pytest.approx(parts.simulate - parts.write)
    assert cells("a run", parts)[1] == f"{parts.run:.2f}"
