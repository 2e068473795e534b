"""Runs one case on SGLang's classes."""

from typing import Any

from oracle.sglang.driver import Driver
from oracle.sglang.loops import run_normal, run_overlap
from oracle.sglang.pipeline import run_stages
from oracle.sglang.settings import Config

Rows = list[dict[str, Any]]


def run_case(config: Config, workload: Rows) -> tuple[Rows, Rows]:
    """What SGLang decides: its steps, then what became of the requests."""
    driver = Driver(config, workload)
    if config["stages"] > 1:
        run_stages(driver, config["stages"])
    elif config["enable_overlap"]:
        run_overlap(driver)
    else:
        run_normal(driver)
    return driver.results()
