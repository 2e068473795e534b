"""The scenario files that come with the project."""

from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def test_every_shipped_scenario_is_valid_and_named_after_its_file():
    """Loading needs no trace file."""
    paths = sorted(SCENARIOS.rglob("*.yaml"))
    assert {path.stem for path in paths} >= {"smoke", "conversation"}
    for path in paths:
        assert load_scenario(path).scenario.name == path.stem


def test_calibration_scenarios_can_be_built():
    """Self-contained: profiles, models and traffic are all there."""
    for path in sorted(SCENARIOS.glob("calibration*/*.yaml")):
        assert build(load_scenario(path)).workload.num_requests > 0


def test_smoke_scenario_asks_for_more_than_its_pool_holds():
    """Its prompts share prefixes, and together they do not fit: the cache must evict."""
    built = build(load_scenario(SCENARIOS / "smoke.yaml"))
    prompts = [request.spec.prompt.token_ids() for request in built.workload.arrivals()]
    assert len(prompts) == 200
    pages = {tuple(ids[:end]) for ids in prompts for end in range(16, len(ids) + 1, 16)}
    assert len(pages) * 16 > 2 * built.scheduler.pool_tokens
    assert len(pages) < 0.8 * sum(len(ids) // 16 for ids in prompts)


def test_conversation_scenario_without_its_trace_names_the_trace(tmp_path):
    """Where the trace is absent, that is the message."""
    path = tmp_path / "conversation.yaml"
    path.write_text((SCENARIOS / "conversation.yaml").read_text())
    with pytest.raises(InputError, match=r"first-40min\.jsonl\.gz: .*[Nn]o such file"):
        build(load_scenario(path))


def test_conversation_scenario_replays_the_whole_slice(shared_dir):
    """7,851 requests over 40 minutes, all of which the context length admits."""
    trace = shared_dir / "traces/mooncake/conversation_trace.first-40min.jsonl.gz"
    if not trace.is_file():
        pytest.skip(f"no trace at {trace}")
    built = build(load_scenario(SCENARIOS / "conversation.yaml", [f"workload.path={trace}"]))
    assert built.workload.num_requests == 7851
    assert built.scheduler.max_total_tokens == 819_200
    longest = max(
        len(request.spec.prompt) + request.spec.max_new_tokens
        for request in built.workload.arrivals()
    )
    assert longest < built.scheduler.context_length
