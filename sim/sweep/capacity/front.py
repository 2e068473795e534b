"""Deployments under loads that a search tried, and which of them no other beats.

Two things are wanted at once: many tokens a second for each user, and many of each GPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.confidence.confidence import over_seeds
from sim.confidence.judged import ATTAINMENT
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.metrics.points import MeanInterval, mean_interval
from sim.sweep.capacity.candidates import Candidate, Size, in_words
from sim.sweep.capacity.deployments import AT_MOST
from sim.sweep.capacity.judged_runs import JudgedRuns
from sim.sweep.capacity.plan import CapacityPlan

_MS_PER_S = NS_PER_S / NS_PER_MS
_SATURATED_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedLoad:
    """A deployment under a load, and its runs.

    Attributes:
        load: as a multiple of the plan's own.
    """

    candidate: Candidate
    size: Size
    load: float
    judged: JudgedRuns

    @property
    def num_gpus(self) -> int:
        return self.candidate.gpus(self.size)

    @property
    def tokens_per_user(self) -> MeanInterval:
        """Output tokens/s that a user sees after the first token: 1 / mean TPOT, over the seeds."""
        found = self.judged.by_seed("mean_tpot_ms")
        return mean_interval([_MS_PER_S / each for each in found if each])

    @property
    def tokens_per_gpu(self) -> MeanInterval:
        """Output tokens/s of each GPU, over the seeds."""
        found = self.judged.by_seed("output_throughput")
        return mean_interval([each / self.num_gpus for each in found if each is not None])

    @property
    def confidence(self) -> dict[str, dict[str, float]]:
        """90 % intervals of both numbers, where servers like these were measured."""
        found = over_seeds([each or {} for each in self.judged.by_seed("confidence")])
        intervals = {}
        if tpot := found.get("mean_tpot_ms"):
            ends = {"low": "high", "expected": "expected", "high": "low"}
            intervals["tokens_per_user"] = {
                end: _MS_PER_S / tpot[other] for end, other in ends.items() if other in tpot
            }
        if throughput := found.get("output_throughput"):
            intervals["tokens_per_gpu"] = {
                end: value / self.num_gpus for end, value in throughput.items()
            }
        return intervals

    @property
    def is_steady(self) -> bool:
        """Whether it can go on like this: the queue does not grow as long as requests arrive.

        Of runs that were stopped it is not known.
        """
        shares = [bool(each) for each in self.judged.by_seed("saturated")]
        return sum(shares) < _SATURATED_SHARE * len(shares)

    @property
    def place(self) -> tuple[float, float] | None:
        """Tokens/s for each user and of each GPU; None: one of them is not known."""
        user, gpu = self.tokens_per_user.mean, self.tokens_per_gpu.mean
        return None if user is None or gpu is None else (user, gpu)


def front_of(tried: Iterable[TriedLoad]) -> list[TriedLoad]:
    """The loads that no other beats in both numbers, the most tokens/s for each user first.

    Those under which a queue grows for as long as requests arrive do not count.
    """
    placed = [(place, one) for one in tried if one.is_steady and (place := one.place) is not None]
    front: list[TriedLoad] = []
    most = -1.0
    for (_, gpu), one in sorted(placed, key=lambda each: (each[0][0], each[0][1]), reverse=True):
        if gpu > most:
            front.append(one)
            most = gpu
    return front


def load_rows(plan: CapacityPlan, tried: Sequence[TriedLoad]) -> list[dict[str, Any]]:
    """Everything about the loads that were tried, a flat row for each."""
    front = {id(one) for one in front_of(tried)}
    return [_row(plan, one, is_on_front=id(one) in front) for one in tried]


def _row(plan: CapacityPlan, one: TriedLoad, *, is_on_front: bool) -> dict[str, Any]:
    amount, unit = plan.amount(one.load)
    user, gpu = one.tokens_per_user, one.tokens_per_gpu
    return {
        "deployment": in_words(one.candidate),
        "servers": " + ".join(map(str, one.size)),
        "num_gpus": one.num_gpus,
        "load": amount,
        "load_unit": unit,
        "on_front": is_on_front,
        "meets": one.judged.attains(plan.section),
        "saturated": None if not one.judged.is_whole else not one.is_steady,
        "tokens_per_user": user.mean,
        "tokens_per_user_half_width": user.half_width,
        **_ends(one.confidence, "tokens_per_user"),
        "tokens_per_gpu": gpu.mean,
        "tokens_per_gpu_half_width": gpu.half_width,
        **_ends(one.confidence, "tokens_per_gpu"),
        ATTAINMENT: one.judged.interval(ATTAINMENT).mean,
        AT_MOST: one.judged.most_attainment,
        "mean_ttft_ms": one.judged.interval("mean_ttft_ms").mean,
        "num_seeds": len(one.judged.outcomes),
    }


def _ends(intervals: Mapping[str, Mapping[str, float]], name: str) -> dict[str, float | None]:
    found = intervals.get(name, {})
    return {f"{name}_{end}": found.get(end) for end in ("low", "high")}
