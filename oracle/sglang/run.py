"""Runs one case on SGLang's classes."""

from functools import partial
from typing import Any

from oracle.sglang.driver import Driver, in_order
from oracle.sglang.ending import error_of
from oracle.sglang.loops import run_normal, run_overlap
from oracle.sglang.pipeline import run_stages
from oracle.sglang.ranks import run_ranks
from sim.installed.inside.sglang.clock import VirtualClock
from sim.installed.inside.sglang.settings import Config

Rows = list[dict[str, Any]]


def run_case(config: Config, workload: Rows) -> tuple[Rows, Rows, str]:
    """What SGLang decides: its steps, what became of the requests, and the error it ends with."""
    if config["ranks"] > 1:
        return run_ranks(config, workload)
    clock = VirtualClock()
    clock.install()
    driver = Driver(config, in_order(workload), clock)
    if config["stages"] > 1:
        loop = partial(run_stages, num_stages=config["stages"])
    else:
        loop = run_overlap if config["enable_overlap"] else run_normal
    error = error_of(lambda: loop(driver))
    return *driver.results(), error
