"""Runs one case on SGLang's classes."""

from typing import Any

from oracle.sglang.clock import VirtualClock
from oracle.sglang.driver import Driver, in_order
from oracle.sglang.loops import run_normal, run_overlap
from oracle.sglang.pipeline import run_stages
from oracle.sglang.ranks import run_ranks
from oracle.sglang.settings import Config

Rows = list[dict[str, Any]]


def run_case(config: Config, workload: Rows) -> tuple[Rows, Rows]:
    """What SGLang decides: its steps, then what became of the requests."""
    if config["ranks"] > 1:
        return run_ranks(config, workload)
    clock = VirtualClock()
    clock.install()
    driver = Driver(config, in_order(workload), clock)
    if config["stages"] > 1:
        run_stages(driver, config["stages"])
    elif config["enable_overlap"]:
        run_overlap(driver)
    else:
        run_normal(driver)
    return driver.results()
