"""Without the package of measured operators, one line says how to install it."""

from importlib.metadata import PackageNotFoundError

import pytest

from sim.extras import how_to_install
from sim.latency.aiconfigurator import package

LATENCY = "latency={kind: aiconfigurator, system: h100_sxm}"


@pytest.mark.parametrize("command", ["run", "validate", "sweep", "plan"])
def test_command_without_the_package_says_so_at_once(
    refused_bare, scenario_with, monkeypatch, command, listing
):
    """No traceback, and no point is run."""

    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(package, "version", absent)
    package.open_engine.cache_clear()
    file = scenario_with("model: llama-3.1-8b\n")
    sections = {
        "sweep": ("--set", "sweep={seeds: [1, 2]}"),
        "plan": ("--set", "plan={gpus: {h100_sxm: {}}, min_slo_attainment: 0.9, max_gpus: 1}"),
    }.get(command, ())
    pool = ("--set", "scheduler.max_total_tokens=null")
    before = listing()
    line = refused_bare(command, file, "--set", LATENCY, *pool, *sections)
    assert line.endswith(
        "needs the package aiconfigurator-core: " + how_to_install("aiconfigurator")
    )
    assert listing() == before


def test_run_says_that_a_model_changes_nothing(simulate, scenario):
    """A linear latency has its own times: somebody expected others."""
    ended = simulate("run", scenario, "--set", "model=llama-3.1-8b")
    assert ended.code == 0
    assert ended.err == (
        "servetwin: --set model=llama-3.1-8b: changes no step time: latency of kind linear"
        " (roofline would)\n"
    )
