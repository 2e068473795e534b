"""Runs that the tests of metrics share."""

import pytest

from sim.commands.running.simulate import run_built
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.apart import APART


@pytest.fixture(scope="session")
def apart_log():
    """Makes the log of a run of a scenario with server pools."""

    def log_of(overrides=(), text=APART):
        return run_built(build(load_scenario_text(text, overrides, name="apart.yaml")))

    return log_of
