"""What a search for deployments finds out about its candidates, and its results on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sim.confidence.confidence import over_seeds
from sim.confidence.judged import ATTAINMENT, GOODPUT
from sim.core.files import json_text
from sim.family.launch_command import LaunchCommand
from sim.latency.hardware import gpu_named
from sim.metrics.points import MeanInterval, mean_interval
from sim.sweep.capacity.candidates import DEGREES, Candidate, Size
from sim.sweep.capacity.judged_runs import W_PER_KW, JudgedRuns
from sim.sweep.capacity.memory import cost_per_million_tokens
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.capacity.traffic_kv import TrafficKv
from sim.sweep.result_files import launch_content

HIT_RATE, _THROUGHPUT = "cache_hit_rate_pct", "total_throughput"
# What is compared with as many servers as the best deployment has.
ALIKE_METRICS = (HIT_RATE, "mean_ttft_ms", ATTAINMENT)
_EMPTY = mean_interval([])
# Of runs that were stopped because they miss the SLO.
AT_MOST = f"{ATTAINMENT}_at_most"


class DeploymentVerdict(StrEnum):
    """What the search found out about a candidate.

    MEETS: with some number of servers, or under some load, it meets the SLO. DEARER: it costs more
    than the deployments that are shown, or is likely to, so its search was not finished. WEAKER:
    the same, if the most load is sought. MISSES: it misses the SLO with all numbers of servers that
    were allowed, or under all loads. TOO_MUCH_POWER: where it meets the SLO it draws more than is
    allowed; or it does under all loads, if the most load is sought. CANNOT_RUN: its settings are
    refused, or it has more GPUs than are allowed. FAILED: a run of it failed.
    """

    MEETS = "meets"
    DEARER = "dearer"
    WEAKER = "weaker"
    MISSES = "misses"
    TOO_MUCH_POWER = "too much power"
    CANNOT_RUN = "cannot run"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedDeployment:
    """A candidate, and what the search found out about it.

    Attributes:
        size: the numbers of servers. If it meets the SLO: the cheapest that do. If it is dearer:
            the cheapest that may. If it misses: the largest that were tried. Else None. If the most
            load is sought: the largest allowed.
        load: under which it was judged, as a multiple of the plan's own. If the most load is
            sought: the largest that it bears; if it is weaker, may bear; if it misses the SLO, the
            smallest that was tried.
        judged: its runs with that size and load; None if there are none.
        fewer: the sizes with one server fewer that were run, and their runs.
        more: the next larger load that was run, and its runs, if the most load is sought.
        reason: why it cannot run, or what failed.
        headroom: by which share the rate can grow until the SLO is missed; None: not looked for.
        is_headroom_open: the SLO was met at every rate tried, so the headroom may be larger.
        is_simulated: whether any run was made. If not, step times alone say what it may cost.
        alike: if sizes of memory are searched for: its runs with as many servers as the best one.
    """

    candidate: Candidate
    verdict: DeploymentVerdict
    size: Size | None = None
    load: float = 1.0
    judged: JudgedRuns | None = None
    fewer: tuple[tuple[Size, JudgedRuns], ...] = ()
    more: tuple[float, JudgedRuns] | None = None
    reason: str | None = None
    headroom: float | None = None
    is_headroom_open: bool = False
    is_simulated: bool = True
    alike: JudgedRuns | None = None

    @property
    def replicas(self) -> int | None:
        """All servers."""
        return None if self.size is None else sum(self.size)

    @property
    def num_gpus(self) -> int | None:
        return None if self.size is None else self.candidate.gpus(self.size)

    @property
    def cost(self) -> float | None:
        return None if self.size is None else self.candidate.cost(self.size)

    @property
    def cost_per_million_tokens(self) -> float | None:
        """The price of a million prompt and output tokens; None: nothing has a price, or ran."""
        is_priced = self.candidate.price_per_hour is not None
        cost = self.cost if is_priced else None
        return cost_per_million_tokens(cost, self.interval(_THROUGHPUT).mean)

    @property
    def meets(self) -> bool:
        return self.verdict is DeploymentVerdict.MEETS

    @property
    def misses(self) -> bool:
        return self.verdict is DeploymentVerdict.MISSES

    @property
    def power_kw(self) -> float | None:
        """Mean power of all GPUs; None: not measured."""
        return None if self.judged is None else self.judged.power_kw

    @property
    def goodput_per_gpu(self) -> float | None:
        """Requests/s within the SLO, mean over the seeds, for each GPU."""
        goodput = self.interval(GOODPUT).mean
        return None if goodput is None or not self.num_gpus else goodput / self.num_gpus

    def interval(self, metric: str) -> MeanInterval:
        """The mean of a metric over the seeds."""
        return _EMPTY if self.judged is None else self.judged.interval(metric)

    def rank(self) -> tuple[object, ...]:
        """Sort key, less is better: load, cost, GPUs, headroom, attainment, number.

        Where the least cost is sought, all loads are the same.
        """
        attainment = self.interval(ATTAINMENT).mean or 0.0
        number = self.candidate.number
        return (-self.load, self.cost, self.num_gpus, -(self.headroom or 0.0), -attainment, number)


# The metrics that are shown for each deployment.
DEPLOYMENT_METRICS = (ATTAINMENT, "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms")


def plan_json(
    plan: CapacityPlan,
    deployments: Sequence[TriedDeployment],
    launches: Mapping[str, Sequence[LaunchCommand]],
    loads: Sequence[Mapping[str, Any]],
    sought: str,
) -> str:
    """The text of results.json; equal results give equal text.

    `launches` are the commands of each family's best servers, the best family first; `loads` are
    the rows of all loads that were tried (`sim.sweep.capacity.front`); `sought` says what was
    looked for.
    """
    best = deployments[0].judged if deployments[:1] else None
    meets = best is not None and deployments[0].verdict is DeploymentVerdict.MEETS
    runs = best.by_seed("confidence") if best is not None and meets else []
    content = {
        "name": plan.plan.base.scenario.name,
        "sought": sought,
        "objective": plan.section.objective,
        "min_slo_attainment": plan.section.min_slo_attainment,
        "seeds": plan.seeds,
        "confidence": over_seeds([one or {} for one in runs]),
        **launch_content(next(iter(launches.values()), [])),
        "by_family": {family: launch_content(each) for family, each in launches.items()},
        "deployments": [
            {**_row(plan, one), "settings": settings_of(plan, one), "metrics": _metrics(one)}
            for one in deployments
        ],
        "loads": loads,
        **({} if plan.kv is None else {"memory": _memory(plan, plan.kv)}),
        "scenario": plan.plan.base.raw,
    }
    return json_text(content, indent=1)


def plan_rows(plan: CapacityPlan, deployments: Sequence[TriedDeployment]) -> list[dict[str, Any]]:
    """The rows of results.csv, one for each deployment."""
    return [_row(plan, one) for one in deployments]


def tried_keys(plan: CapacityPlan) -> tuple[str, ...]:
    """All key paths that any server's grid has."""
    return tuple(dict.fromkeys(key for one in plan.candidates for key in one.tried))


def settings_of(plan: CapacityPlan, deployment: TriedDeployment) -> dict[str, Any]:
    """The settings with which `simulate run` runs the deployment, without the seed."""
    size = deployment.size or deployment.candidate.smallest
    return dict(plan.settings(deployment.candidate, size, deployment.load))


def _row(plan: CapacityPlan, deployment: TriedDeployment) -> dict[str, Any]:
    candidate = deployment.candidate
    return {
        "gpu": candidate.gpu,
        **{name: candidate.degrees.get(name) for name in DEGREES},
        "family": candidate.family,
        **(_sizes(candidate) if plan.section.memory is not None else {}),
        **{key: candidate.tried.get(key) for key in tried_keys(plan)},
        "verdict": deployment.verdict,
        "replicas": deployment.replicas,
        **(_disaggregated_columns(deployment) if plan.section.disaggregated is not None else {}),
        "num_gpus": deployment.num_gpus,
        "cost": deployment.cost,
        **(_load_columns(plan, deployment) if plan.is_for_load else {}),
        **(_power_columns(plan, deployment) if plan.section.max_kw is not None else {}),
        "headroom": deployment.headroom,
        "is_headroom_open": deployment.is_headroom_open,
        "is_simulated": deployment.is_simulated,
        **{name: deployment.interval(name).mean for name in DEPLOYMENT_METRICS},
        f"{ATTAINMENT}_half_width": deployment.interval(ATTAINMENT).half_width,
        AT_MOST: None if deployment.judged is None else deployment.judged.most_attainment,
        **(_worth(deployment) if plan.section.memory is not None else {}),
        "reason": deployment.reason,
    }


def _sizes(candidate: Candidate) -> dict[str, Any]:
    memory = candidate.memory
    return {name: getattr(memory, name, None) for name in ("dram_gb", "store_tb")}


def _worth(deployment: TriedDeployment) -> dict[str, Any]:
    rates, alike = (HIT_RATE, "host_hit_rate_pct"), deployment.alike
    return {
        **{name: deployment.interval(name).mean for name in rates},
        "cost_per_million_tokens": deployment.cost_per_million_tokens,
        **{
            f"alike_{name}": None if alike is None else alike.interval(name).mean
            for name in ALIKE_METRICS
        },
    }


def _memory(plan: CapacityPlan, kv: TrafficKv) -> dict[str, Any]:
    """What the traffic's KV says of sizes."""
    curve = kv.curve
    return {
        "most_tokens": kv.num_tokens,
        "unlimited_hit_pct": curve.hit_pct(curve.max_blocks),
        "max_useful_tokens": curve.max_blocks * curve.block_size,
        "num_useless": plan.num_useless,
    }


def _load_columns(plan: CapacityPlan, deployment: TriedDeployment) -> dict[str, Any]:
    amount, unit = plan.amount(deployment.load)
    return {"load": None if deployment.size is None else amount, "load_unit": unit}


def _power_columns(plan: CapacityPlan, deployment: TriedDeployment) -> dict[str, Any]:
    return {"power_kw": deployment.power_kw, "board_kw": board_kw(plan, deployment)}


def board_kw(plan: CapacityPlan, deployment: TriedDeployment) -> float | None:
    """The most that the GPUs' boards may draw; None: not known which, or how many, they are."""
    gpu, num_gpus = gpu_named(deployment.candidate.gpu), deployment.num_gpus
    # Latencies of other kinds do not say over how many GPUs the model is spread.
    is_counted = hasattr(plan.plan.base.scenario.latency, "tp")
    if gpu is None or num_gpus is None or not is_counted:
        return None
    return num_gpus * gpu.board_w / W_PER_KW


def _disaggregated_columns(deployment: TriedDeployment) -> dict[str, Any]:
    """The numbers of prefill and of decode servers, and the degrees of the latter."""
    decoders, size = deployment.candidate.decoders, deployment.size
    num_prefill, num_decode = size if decoders is not None and size is not None else (None, None)
    degrees = {} if decoders is None else decoders.degrees
    return {
        "prefill": num_prefill,
        "decode": num_decode,
        **{f"decode_{name}": degrees.get(name) for name in ("tp", "dp", "moe_ep")},
        "goodput_per_gpu": deployment.goodput_per_gpu,
    }


def _metrics(deployment: TriedDeployment) -> dict[str, Any]:
    judged = deployment.judged
    return {
        name: {
            **asdict(deployment.interval(name)),
            "by_seed": [] if judged is None else judged.by_seed(name),
        }
        for name in DEPLOYMENT_METRICS
    }
