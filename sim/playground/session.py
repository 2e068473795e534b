"""What the page asks for: the controls, a simulation with some of them moved, and its scenario."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

import numpy as np

from sim.core.arrays import Float64
from sim.core.errors import InputError
from sim.core.messages import shorten
from sim.core.units import NS_PER_S
from sim.des.routers.table import make_router
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.rates import hit_rate_over_time
from sim.metrics.registry import metric
from sim.metrics.summary import Summary
from sim.metrics.timeline import timeline
from sim.playground.controls import FAIRNESS, FCFS, controls_of, policy_of, policy_path
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario, build, located_errors
from sim.scenario.load import LoadedScenario
from sim.scenario.strict_yaml import yaml_text
from sim.tables.text import number
from sim.workers.executor import TraceCache
from sim.workload.kinds.build import first_requests

# Requests that a move simulates unless the user says otherwise; the most that the page may ask for.
DEFAULT_REQUESTS, MAX_REQUESTS = 600, 20_000
_MAX_VALUE = 200

# Reads the scenario, with further `--set` options.
Load = Callable[[Sequence[str]], LoadedScenario]
# Simulates it; returns the log and its summary.
Simulate = Callable[[BuiltScenario], tuple[RunLog, Summary]]
# Values by key path, as `--set` takes them.
Settings = Mapping[str, str]


class Playground:
    """A scenario whose settings can be moved.

    It takes settings of its controls only. So a link to the page cannot name a file, or a class of
    Python to run.
    """

    def __init__(self, load: Load, simulate: Simulate) -> None:
        self._load = load
        self._simulate = simulate
        self._base = load(())
        self._controls = {control.key: control for control in controls_of(self._base)}
        policy = self._controls[policy_path(self._base.scenario)]
        self._compared_by_default = {policy.key: policy.value}
        self._read_trace = TraceCache()
        # One simulation at a time: two would take twice as long each.
        self._lock = Lock()
        build(self._base, read_trace=self._read_trace)
        with located_errors(self._base):
            make_router(self._base.scenario.router, self._base.base_dir)

    def describe(self) -> dict[str, Any]:
        """The scenario's name, and what the controls are."""
        return {
            "name": self._base.scenario.name,
            "file": str(self._base.path),
            "controls": [asdict(control) for control in self._controls.values()],
            "num_requests": DEFAULT_REQUESTS,
            "max_requests": MAX_REQUESTS,
            "policy_key": policy_path(self._base.scenario),
        }

    def simulate(self, settings: Settings, num_requests: int) -> dict[str, Any]:
        """Two runs with these settings, first come, first served beside the policy that they name.

        Args:
            settings: values of controls.
            num_requests: how many requests of the scenario's traffic are simulated.

        Returns:
            For each run its policy, curves and figures; how many requests were simulated, and of
            how many; and how many seconds that took.
        """
        if not 1 <= num_requests <= MAX_REQUESTS:
            raise InputError(f"requests: must be from 1 to {MAX_REQUESTS:,}, got {num_requests}")
        with self._lock:
            begin_s = time.perf_counter()
            chosen = self._load(self._options(settings))
            runs = [self._run(each, num_requests) for each in self._compared(chosen, settings)]
            return {
                "runs": [shown for shown, _, _ in runs],
                "num_requests": runs[-1][1],
                "num_all": runs[-1][2],
                "seconds": time.perf_counter() - begin_s,
            }

    def yaml(self, settings: Settings) -> str:
        """The scenario with these settings, as the text of a file."""
        loaded = self._load(self._options(settings))
        where = (
            f"# Made from {self._base.path} in the playground. Keep it in the same folder: paths"
        )
        return f"{where} are relative to it.\n{yaml_text(dict(loaded.raw))}"

    def _options(self, settings: Settings) -> list[str]:
        options: list[str] = []
        for key, value in {**self._compared_by_default, **settings}.items():
            control = self._controls.get(key)
            if control is None:
                raise InputError(f"{shorten(key)}: is no setting of this page")
            if len(value) > _MAX_VALUE or (control.is_choice and value not in control.stops):
                raise InputError(f"{key}: {shorten(repr(value))} is no choice of this page")
            options += [*control.implied, f"{key}={value}"]
        return options

    def _compared(self, chosen: LoadedScenario, settings: Settings) -> list[LoadedScenario]:
        """First come, first served, and the chosen policy if it is another."""
        scenario = chosen.scenario
        if policy_of(scenario) == FCFS:
            return [chosen]
        first = [f"{policy_path(scenario)}={FCFS}"]
        if "fairness" in type(scenario.scheduler).model_fields:
            first.append(f"{FAIRNESS}=null")  # some rules do not go with this policy
        return [self._load([*self._options(settings), *first]), chosen]

    def _run(self, loaded: LoadedScenario, num_requests: int) -> tuple[dict[str, Any], int, int]:
        built = build(loaded, read_trace=self._read_trace)
        whole = built.workload
        built = replace(built, workload=first_requests(whole, num_requests))
        log, summary = self._simulate(built)
        shown = {
            "name": policy_of(loaded.scenario),
            "curves": curves(log),
            "figures": figures(summary),
        }
        return shown, built.workload.num_requests, whole.num_requests


_PERCENTS = np.linspace(0, 100, 201)
# The metrics of the table; those of an SLO only where the scenario has one.
_FIGURES = (
    "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_itl_ms",
    "cache_hit_rate_pct", "request_throughput", "output_throughput", "mean_kv_used_pct",
    "max_wait_ms",
)  # fmt: skip
_SLO_FIGURES = ("request_goodput", "slo_attainment")


def curves(log: RunLog) -> dict[str, dict[str, list[float]]]:
    """Points of each curve.

    `ttft`: percent of the finished requests up to each time to first token, in ms. The others are
    over time in s: `hits`, the percent of newly admitted prompt tokens that was cached; `queue`,
    the waiting requests of all replicas; `kv`, the percent of the KV pools in use.
    """
    requests = log.measured().requests
    ttft_ms = request_latencies(requests).ttft_ms[finished_mask(requests)]
    quantiles = np.percentile(ttft_ms, _PERCENTS) if len(ttft_ms) else np.zeros(0)
    middles_ns, hits_pct = hit_rate_over_time(log)
    over_time = timeline(log)
    pool = over_time.used_tokens + over_time.evictable_tokens + over_time.free_tokens
    used_pct = 100 * over_time.used_tokens / np.maximum(pool, 1)
    return {
        "ttft": _points(quantiles, _PERCENTS[: len(quantiles)]),
        "hits": _points(middles_ns / NS_PER_S, hits_pct),
        "queue": _points(over_time.t_s, over_time.waiting),
        "kv": _points(over_time.t_s, used_pct),
    }


def figures(summary: Summary) -> list[tuple[str, str]]:
    """Rows of the table: what is shown, and its value."""
    names = [*_FIGURES, *(_SLO_FIGURES if summary.get("goodput_slos_ms") else ())]
    rows = [(metric(name).label_with_unit, number(summary.get(name))) for name in names]
    return [*rows, ("saturated", "yes" if summary.get("saturated") else "no")]


def _points(x: Float64, y: Float64) -> dict[str, list[float]]:
    """Both columns with five significant digits."""
    return {name: [float(f"{value:.5g}") for value in column.tolist()]
            for name, column in (("x", x), ("y", y))}  # fmt: skip
