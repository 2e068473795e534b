"""What a search for deployments finds out about its candidates."""

from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any

from sim.metrics.confidence import MeanInterval, mean_interval
from sim.sweep.candidates import Candidate
from sim.sweep.points import PointOutcome
from sim.workers.executor import Status

ATTAINMENT = "slo_attainment"
_EMPTY = mean_interval([])


class Verdict(StrEnum):
    """What the search found out about a candidate."""

    MEETS = "meets"
    DEARER = "dearer"
    MISSES = "misses"
    CANNOT_RUN = "cannot run"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Judged:
    """The runs of a deployment under some load.

    Attributes:
        outcomes: one for each seed.
    """

    outcomes: tuple[PointOutcome, ...]

    @property
    def fault(self) -> PointOutcome | None:
        """The first run that has no result."""
        return next((one for one in self.outcomes if one.status is not Status.DONE), None)

    def by_seed(self, metric: str) -> list[Any]:
        return [(one.result or {}).get(metric) for one in self.outcomes]

    def interval(self, metric: str) -> MeanInterval:
        """The mean of a metric over the seeds."""
        return mean_interval([value for value in self.by_seed(metric) if value is not None])

    def attains(self, least: float) -> bool:
        return fmean(value or 0.0 for value in self.by_seed(ATTAINMENT)) >= least


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A candidate, and what the search found out about it.

    Attributes:
        candidate: what each replica is.
        verdict: what was found out.
        replicas: `meets`: the smallest number that meets the SLO. `dearer`: the smallest number
            that could. `misses`: the largest number that was tried. Else None.
        judged: its runs with that number; None if there are none.
        fewer: its runs with one replica fewer; None if there are none.
        reason: why it cannot run, or what failed.
        headroom: the share of the rate that can be added; None: not looked for.
        is_headroom_open: no rate that was tried is too high.
    """

    candidate: Candidate
    verdict: Verdict
    replicas: int | None = None
    judged: Judged | None = None
    fewer: Judged | None = None
    reason: str | None = None
    headroom: float | None = None
    is_headroom_open: bool = False

    @property
    def num_gpus(self) -> int | None:
        return None if self.replicas is None else self.replicas * self.candidate.num_gpus

    @property
    def cost(self) -> float | None:
        return None if self.replicas is None else self.candidate.cost(self.replicas)

    def interval(self, metric: str) -> MeanInterval:
        """The mean of a metric over the seeds."""
        return _EMPTY if self.judged is None else self.judged.interval(metric)

    def rank(self) -> tuple[object, ...]:
        """Sort key, less is better: cost, GPUs, headroom, attainment, number."""
        attainment = self.interval(ATTAINMENT).mean or 0.0
        number = self.candidate.number
        return (self.cost, self.num_gpus, -(self.headroom or 0.0), -attainment, number)
