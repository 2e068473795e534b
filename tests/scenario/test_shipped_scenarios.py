"""The scenario files that come with the project."""

from pathlib import Path

from sim.commands.running.simulate import simulate_built
from sim.des.run import RunOptions
from sim.latency.profile.format import shipped_profiles
from sim.metrics.summary import summarise
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


def test_every_file_that_a_shipped_scenario_names_ships_with_it():
    """A clone needs nothing from outside."""
    named = {
        path
        for scenario in SCENARIOS.rglob("*.yaml")
        for path in named_paths(load_scenario(scenario).raw, scenario.parent)
    }
    assert {path.name for path in named} >= {"mooncake-conversation.first-10min.jsonl.gz"}
    for path in named:
        assert path.exists(), path
        assert path.resolve().is_relative_to(SCENARIOS.parent), path


def named_paths(value, folder):
    if isinstance(value, dict):
        for key, below in value.items():
            if key == "path" and below not in shipped_profiles():
                yield folder / below
            else:
                yield from named_paths(below, folder)
    elif isinstance(value, list):
        for below in value:
            yield from named_paths(below, folder)


def test_conversation_scenario_is_not_overloaded():
    """1,750 requests over ten minutes, all of which the context length admits."""
    built = build(load_scenario(SCENARIOS / "conversation.yaml"))
    summary = summarise(simulate_built(built, RunOptions()))
    assert summary["completed"] == summary["submitted"] == 1750
    assert not summary["saturated"]
    assert summary["median_ttft_ms"] < 1000
