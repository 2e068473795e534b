"""The settings of a scenario's scheduler, without the rest of what is built of it."""

from pathlib import Path

from sim.engine.server_config import ServerConfig
from sim.scenario.build import scheduler_config_with_pool
from sim.scenario.kv_pool import size_of_pool
from sim.scenario.kv_sizes import ServedModel
from sim.scenario.schema import Scenario


def build_scheduler_config(scenario: Scenario, *, base_dir: Path = Path()) -> ServerConfig:
    """The pool size is derived if the scenario does not give it."""
    pool_tokens = size_of_pool(ServedModel.of(scenario, base_dir))
    return scheduler_config_with_pool(scenario, pool_tokens, base_dir=base_dir)
