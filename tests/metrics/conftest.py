"""Runs that the tests of metrics share."""

import pytest

from sim.commands.running.simulate import run_built
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.disaggregated import DISAGGREGATED


@pytest.fixture(scope="session")
def pools_log():
    """Makes the log of a run of a scenario with server pools."""

    def log_of(overrides=(), text=DISAGGREGATED):
        return run_built(build(load_scenario_text(text, overrides, name="disaggregated.yaml")))

    return log_of
