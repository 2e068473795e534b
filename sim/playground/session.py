"""What the page asks for: its controls, a simulation with some of them moved, and its scenario."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from sim.core.arrays import Float64
from sim.core.errors import InputError, shorten
from sim.core.units import NS_PER_S
from sim.des.routers.table import make_router
from sim.families import FAMILIES, family_named
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.rates import hit_rate_over_time
from sim.metrics.registry import metric
from sim.metrics.summary import Summary
from sim.metrics.timeline import timeline
from sim.report.confidence_text import confidence_lines
from sim.report.figures.key_text import key_label, makes_load
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario, build, located_errors
from sim.scenario.load import LoadedScenario, refuse_pools
from sim.scenario.schema import Scenario
from sim.scenario.strict_yaml import yaml_text
from sim.tables.table import number
from sim.workers.executor import TraceCache
from sim.workload.kinds.build import first_requests

# The policy that others are compared with, and the one that is shown beside it unless the scenario
# has another.
FCFS, _LPM = "fcfs", "lpm"
FAIRNESS = "scheduler.fairness"
_FAIRNESS_T = f"{FAIRNESS}.t_ms"
# A slider goes from an eighth of the scenario's value to eight times as much, in steps of 19 %.
_FACTORS = tuple(2 ** (quarter / 4) for quarter in range(-12, 13))
_T_STOPS_MS = (0, 20, 50, 100, 150, 200, 300, 500, 1_000, 2_000, 5_000)
_REPLICA_STOPS = (1, 2, 3, 4, 6, 8, 12, 16)
_STEP_STOPS = (64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)
_SHARE_STOPS = tuple(percent / 100 for percent in range(50, 96, 5))
# Keys of a benchmark's client that set its load.
_BENCH_LOAD = ("request_rate", "max_concurrency")


@dataclass(frozen=True, slots=True)
class Control:
    """A slider with a number box, or a list of choices.

    Attributes:
        value: its first value, written as `--set` takes it: that of the scenario, but for a policy
            that is compared with first come, first served.
        stops: the values that the slider stops at, or the choices.
        is_choice: whether no other value can be set.
        implied: further `--set` options that setting the key takes.
        names: what values are called on the page, where that is not the value itself.
    """

    key: str
    label: str
    value: str
    stops: tuple[str, ...]
    is_choice: bool = False
    implied: tuple[str, ...] = ()
    names: Mapping[str, str] | None = None


def controls_of(loaded: LoadedScenario) -> list[Control]:
    """The controls that fit a scenario: load, policy, FAIRNESS_T, step size, pool, replicas."""
    refuse_pools(loaded, "the playground")
    scenario, section = loaded.scenario, loaded.scenario.scheduler
    if section.family not in FAMILIES:
        known = " and ".join(FAMILIES)
        reason = f"the playground knows {known}, not {section.family}"
        raise loaded.error(("scheduler", "family"), reason)
    controls = [*_loads(scenario), _policy(scenario), *_fairness(scenario)]
    family = family_named(section.family)
    key, tokens = f"scheduler.{family.step_tokens_key}", getattr(section, family.step_tokens_key)
    names = {"-1": "∞"} if tokens == -1 else None
    controls.append(_numbers(key, tokens, _STEP_STOPS, names))
    if section.pool_tokens is None:
        share_key, share = section.memory_share
        controls.append(_numbers(f"scheduler.{share_key}", share, _SHARE_STOPS))
    else:
        pool = getattr(section, section.pool_key)
        controls.append(_numbers(f"scheduler.{section.pool_key}", pool, _around(pool)))
    controls.append(_numbers("replicas", scenario.replicas, _REPLICA_STOPS))
    return controls


def policy_path(scenario: Scenario) -> str:
    """The key path of the order of the waiting queue."""
    return f"scheduler.{family_named(scenario.scheduler.family).policy_key}"


def policy_of(scenario: Scenario) -> str:
    """The order of the waiting queue."""
    return str(getattr(scenario.scheduler, family_named(scenario.scheduler.family).policy_key))


def _policy(scenario: Scenario) -> Control:
    family, own = family_named(scenario.scheduler.family), policy_of(scenario)
    # A class of the user's is offered only if the scenario itself names it.
    choices = tuple(dict.fromkeys([own, *family.policies()]))
    shown = _LPM if own == FCFS and _LPM in choices else own
    return Control(policy_path(scenario), family.policy_key, shown, choices, is_choice=True)


def _fairness(scenario: Scenario) -> Iterator[Control]:
    """A control of FAIRNESS_T, unless the family has none or the scenario has another rule."""
    section = scenario.scheduler
    if "fairness" not in type(section).model_fields:
        return
    rule = getattr(section, "fairness", None)
    if rule is not None and rule.kind != "fairness_t":
        return
    value = None if rule is None else rule.t_ms
    implied = (f"{FAIRNESS}.kind=fairness_t",) if rule is None else ()
    stops = [*_T_STOPS_MS, *([value] if value is not None else [])]
    texts = (*(_text(stop) for stop in sorted({float(stop) for stop in stops})), "null")
    yield Control(_FAIRNESS_T, "FAIRNESS_T (ms)", _text(value), texts, implied=implied,
                  names={"null": "∞"})  # fmt: skip


def _loads(scenario: Scenario) -> Iterator[Control]:
    """A control for each number of the section `workload` that sets how much load there is."""
    found = dict(_load_keys(scenario.workload.model_dump(), "workload"))
    tenants = {
        f"workload.parts.{place}.": part.tenant
        for place, part in enumerate(getattr(scenario.workload, "parts", ()))
    }
    for key, value in found.items():
        tenant = next((name for start, name in tenants.items() if key.startswith(start)), "")
        whose = f"{tenant}: " if tenant else ""
        yield _numbers(key, value, _around(value), label=f"{whose}{key_label(key, [key])}")


def _load_keys(data: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(data, Mapping):
        items: Sequence[tuple[Any, Any]] = list(data.items())
    elif isinstance(data, list | tuple):
        items = list(enumerate(data))
    else:
        return
    for key, value in items:
        inner = f"{path}.{key}"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and (makes_load(inner) or key in _BENCH_LOAD):
            yield inner, value
        yield from _load_keys(value, inner)


def _numbers(
    key: str,
    value: float,
    stops: Sequence[float],
    names: Mapping[str, str] | None = None,
    label: str = "",
) -> Control:
    # A negative number stands for no limit, which is more than any other.
    texts = tuple(_text(stop) for stop in sorted({*stops, value}, key=lambda x: (x < 0, x)))
    return Control(key, label or key_label(key, [key]), _text(value), texts, names=names)


def _around(value: float) -> tuple[float, ...]:
    """Values from an eighth to eight times as much, whole if the value is."""
    if isinstance(value, int):
        return tuple({max(1, round(float(f"{value * factor:.3g}"))) for factor in _FACTORS})
    return tuple(float(f"{value * factor:.3g}") for factor in _FACTORS)


def _text(value: float | None) -> str:
    if value is None:
        return "null"
    return str(int(value)) if float(value).is_integer() else repr(value)


# Requests that a move simulates unless the user says otherwise; the most that the page may ask for.
DEFAULT_REQUESTS, MAX_REQUESTS = 600, 20_000
# The most characters of a value.
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
        # So that a page on which nothing was moved compares two policies.
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
        """Run these settings with the policy that they name, and with first come, first served.

        It is a single run if that is the policy.
        Returns for each run its policy, curves, figures and how far to believe it; how many
        requests were simulated, and of how many; and how many seconds that took.
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
            "trust": confidence_lines(summary.get("confidence", {})),
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
