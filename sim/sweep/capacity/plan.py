"""Turns a scenario's `plan` section into what a search for deployments will do."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sim.core.batch import ForwardMode
from sim.core.errors import InputError, KeyPath
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.latency.config import RooflineLatencyConfig
from sim.latency.features import StepFeatures
from sim.latency.hardware import load_hardware
from sim.latency.model import LatencyModel, each_latency
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import LoadedScenario, refuse_pools
from sim.scenario.schema import BESIDE_THE_RUN
from sim.scenario.search_sections import PlanSection
from sim.sweep.capacity.candidates import (
    DEGREES,
    REPLICAS,
    Candidate,
    Size,
    candidates_of,
    pairs_of,
)
from sim.sweep.plan import SEED, Plan, Settings, seeds_of
from sim.workload.kinds.stats import WHOLE, WorkloadStats, load_of, rate_of, scaled, workload_stats
from sim.workload.traces.read import TraceReader, read_trace

# Keys that settings of a plan may not have: other keys of the section set them, or deployments are
# judged by them, or they do not change a run.
_NOT_SET = (*BESIDE_THE_RUN, SEED, "slo", "name", "workload", REPLICAS)


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What a search for deployments will do.

    Attributes:
        section: the section `plan`.
        plan: makes scenarios of settings; it has no points, because the search chooses them.
        candidates: what a replica may be, those that cannot run included.
        seeds: every deployment is run with each of them.
        base_factor: by which the workload's own rate is multiplied.
        base_load: the workload's own rate, or another number that stands for its load, and the unit
            of that.
        server_loads: estimates how many servers the traffic keeps busy.
    """

    section: PlanSection
    plan: Plan
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    base_factor: float
    base_load: tuple[float, str]
    server_loads: "ServerLoads"

    @property
    def is_for_load(self) -> bool:
        """Whether the most load is sought, and not the least cost."""
        return self.section.objective == "load"

    @property
    def is_scalable(self) -> bool:
        """Whether the workload has a rate that can be multiplied."""
        return bool(scaled(self.plan.base.scenario.workload, 1.0))

    @property
    def num_headroom_steps(self) -> int:
        """How many headrooms there are to choose from: multiples of `headroom_step`."""
        # Rounding must not add a step to a multiple.
        return math.ceil(self.section.max_headroom / self.section.headroom_step - 1e-9)

    def headroom(self, steps: int) -> float:
        """The added rate, as a share of the plan's rate, after this number of headroom steps."""
        return min(steps * self.section.headroom_step, self.section.max_headroom)

    def amount(self, load: float) -> tuple[float, str]:
        """A load, given as a multiple of the plan's own, in requests/s or what else it has."""
        base, unit = self.base_load
        amount = base * self.base_factor * load
        return (round(amount) if unit in WHOLE else amount), unit

    def busy(self, candidate: Candidate) -> tuple[float, ...]:
        """How many servers of each kind the plan's traffic keeps busy, estimated from step times.

        Zeros if there is no estimate.
        """
        if candidate.decoders is not None:
            return candidate.decoders.loads
        return (sum(self.server_loads.of(candidate)),)

    def settings(self, candidate: Candidate, size: Size, load: float = 1.0) -> Settings:
        """The settings with which `simulate run` runs a deployment, without the seed.

        `load` is a multiple of the plan's own. A search for the most load never has fewer requests
        than the scenario: few requests say little of an SLO.
        """
        factor = self.base_factor * load
        traffic: Settings = {}
        if factor != 1:
            num_factor = max(1.0, factor) if self.is_for_load else factor
            changes = scaled(self.plan.base.scenario.workload, factor, num_factor)
            traffic = {f"workload.{key}": value for key, value in changes.items()}
        return {**candidate.deployed(size), **traffic}


def plan_capacity(loaded: LoadedScenario, *, read_trace: TraceReader = read_trace) -> CapacityPlan:
    """Check the scenario's `plan` section and list its candidates.

    Raises:
        InputError: there is no such section or no SLO; a key path does not exist, has a wrong
            value, or cannot be set; the traffic has no rate that could be scaled. The message names
            the file, the line and the key path.
    """
    refuse_pools(loaded, "simulate plan, which makes pools itself with plan.disaggregated")
    section = loaded.scenario.plan
    if section is None:
        raise loaded.error((), "has no plan section")
    if not loaded.scenario.slo.has_limit:
        raise loaded.error(("plan", "min_slo_attainment"), "needs an slo section with a limit")
    if loaded.scenario.autoscale is not None:
        reason = "does not go with simulate plan, which looks for fleets of a constant size"
        raise loaded.error(("autoscale",), reason)
    seeds = seeds_of(loaded, "plan", section.seeds)
    _check_keys(loaded, section)
    plan = Plan(loaded, (), (), "plan")
    candidates = list(candidates_of(plan, section))
    factor = _base_factor(loaded, section, read_trace)
    loads = ServerLoads(plan, factor, read_trace)
    if section.disaggregated is not None:
        candidates += pairs_of(section, section.disaggregated, candidates, loads.of)
    load = load_of(loaded.scenario.workload, lambda trace: read_trace(trace, loaded.base_dir))
    found = CapacityPlan(section, plan, tuple(candidates), seeds, factor, load, loads)
    if found.is_for_load and not found.is_scalable:
        kind = loaded.scenario.workload.kind
        reason = f"this traffic (kind {kind}) cannot come faster or more slowly"
        raise loaded.error(("plan", "objective"), reason)
    return found


def _base_factor(loaded: LoadedScenario, section: PlanSection, read_trace: TraceReader) -> float:
    if section.rate_rps is None:
        return 1.0
    workload = loaded.scenario.workload
    rate = rate_of(workload, lambda trace: read_trace(trace, loaded.base_dir))
    if rate is None:
        reason = f"the rate of this traffic (kind {workload.kind}) is not known beforehand"
        raise loaded.error(("plan", "rate_rps"), f"{reason}: leave rate_rps out")
    return section.rate_rps / rate


def _check_keys(loaded: LoadedScenario, section: PlanSection) -> None:
    for place, settings in _settings_of(section):
        for key in settings or ():
            if key.partition(".")[0] in _NOT_SET:
                raise loaded.error(("plan", *place, key), "cannot be set by a plan")
    latency = loaded.scenario.latency
    for name in DEGREES:
        if getattr(section, name) is not None and not hasattr(latency, name):
            raise loaded.error(("plan", name), f"latency of kind {latency.kind} has no {name}")
    if isinstance(latency, RooflineLatencyConfig):
        for name in section.gpus:
            try:
                load_hardware(name)
            except InputError as error:
                raise loaded.error(("plan", "gpus", name), error.reason) from None


def _settings_of(section: PlanSection) -> list[tuple[KeyPath, Mapping[str, object] | None]]:
    """The settings of each part of the section, with the part's key path below `plan`."""
    places: list[tuple[KeyPath, Mapping[str, object] | None]] = [
        (("gpus", name, "settings"), gpu.settings) for name, gpu in section.gpus.items()
    ]
    for number, server in enumerate(section.servers):
        places.append((("servers", number, "settings"), server.settings))
        places.append((("servers", number, "grid"), server.grid))
        for gpu, settings in (server.gpu_settings or {}).items():
            places.append((("servers", number, "gpu_settings", gpu), settings))
    if section.disaggregated is not None:
        places.append((("disaggregated", "settings"), section.disaggregated.settings))
    return places


# New tokens of the prefill step whose time is taken: enough to keep any GPU busy.
_STEP_TOKENS = 8192


class ServerLoads:
    """Estimates from step times how many servers a scenario's traffic keeps busy.

    A search for deployments begins with these numbers, so they need not be exact.

    Args:
        plan: makes the scenario of a candidate's settings.
        factor: by which the rate of the workload is multiplied.
        read_trace: reads the workload's trace, if it has one.
    """

    def __init__(self, plan: Plan, factor: float, read_trace: TraceReader) -> None:
        self._plan = plan
        self._factor = factor
        self._read_trace = read_trace
        self._known: dict[int, tuple[float, float]] = {}
        self._stats: WorkloadStats | None = None

    def of(self, candidate: Candidate) -> tuple[float, float]:
        """How many prefill servers, and how many decode servers, the traffic keeps busy.

        (0, 0) if there is no estimate: the rate is not known beforehand; the servers cannot be
        built, for example because the model does not fit (their trial says why); or they have
        several micro-batches or drafts.
        """
        if candidate.number not in self._known:
            self._known[candidate.number] = self._loads(candidate)
        return self._known[candidate.number]

    def _loads(self, candidate: Candidate) -> tuple[float, float]:
        varied = self._plan.vary({**candidate.settings, REPLICAS: 1})
        try:
            built = build(varied, read_trace=self._read_trace)
        except InputError:
            return (0.0, 0.0)
        if self._stats is None:
            # All candidates have the same traffic.
            self._stats = workload_stats(built.workload)
        stats, rate = self._stats, self._stats.rate_rps
        if rate is None:
            return (0.0, 0.0)
        if built.scheduler.micro_batches > 1 or varied.scenario.scheduler.drafts is not None:
            # The time of one step does not say how long a token takes.
            return (0.0, 0.0)
        latency = next(each_latency(built.latencies))
        ranks = candidate.degrees.get("dp", 1)
        busy = rate * self._factor / ranks
        return (
            busy * _prefill_ns(stats, latency) / NS_PER_S,
            busy * _decode_ns(stats, built, latency) / NS_PER_S,
        )


def _prefill_ns(stats: WorkloadStats, latency: LatencyModel) -> float:
    """Time of a prompt of mean length, if a cache without limits has its prefix."""
    prompt = round(stats.input_tokens.mean)
    new = max(1, round(prompt * (1 - stats.token_hit_pct / 100)))
    cached, rows = prompt - new, max(1, _STEP_TOKENS // new)
    step = StepFeatures(
        mode=ForwardMode.EXTEND,
        num_prefill_tokens=rows * new,
        prefill_attention=rows * new * (2 * cached + new),
        num_prefill_rows=rows,
        num_decode_rows=0,
        num_decode_context_tokens=0,
        num_context_tokens=rows * prompt,
        prefill_rows=((cached, new),) * rows,
    )
    return latency.step_ns(step).device_ns / rows


def _decode_ns(stats: WorkloadStats, built: BuiltScenario, latency: LatencyModel) -> float:
    """Time of an output of mean length: its share of the steps that many rows have together.

    The rows are as many as the SLO and the memory allow.
    """
    limit_ms = built.loaded.scenario.slo.tpot_ms
    outputs = stats.output_tokens.mean
    tokens_per_row = stats.input_tokens.mean + outputs
    rows_in_pool = int(built.scheduler.pool_tokens // tokens_per_row)
    most = max(1, min(rows_in_pool, built.scheduler.max_rows))
    context = round(stats.input_tokens.mean + outputs / 2)

    def step_ns(rows: int) -> float:
        tokens = rows * context
        step = StepFeatures(
            mode=ForwardMode.DECODE,
            num_prefill_tokens=0,
            prefill_attention=0,
            num_prefill_rows=0,
            num_decode_rows=rows,
            num_decode_context_tokens=tokens,
            num_context_tokens=tokens,
            max_decode_context_tokens=context,
            min_decode_context_tokens=context,
        )
        return float(latency.step_ns(step).device_ns)

    low, high = 1, most
    while limit_ms is not None and low < high:
        rows = (low + high + 1) // 2
        if step_ns(rows) <= limit_ms * NS_PER_MS:
            low = rows
        else:
            high = rows - 1
    rows = most if limit_ms is None else low
    return outputs * step_ns(rows) / rows
