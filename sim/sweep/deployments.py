"""What a search for deployments finds out about its candidates."""

from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any

from sim.metrics.confidence import MeanInterval, mean_interval
from sim.sweep.candidates import Candidate, Size
from sim.sweep.points import PointOutcome
from sim.workers.executor import TaskStatus

ATTAINMENT, GOODPUT = "slo_attainment", "request_goodput"
_EMPTY = mean_interval([])


class DeploymentVerdict(StrEnum):
    """What the search found out about a candidate."""

    MEETS = "meets"
    DEARER = "dearer"
    MISSES = "misses"
    CANNOT_RUN = "cannot run"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JudgedRuns:
    """The runs of a deployment under some load.

    Attributes:
        outcomes: one for each seed.
    """

    outcomes: tuple[PointOutcome, ...]

    @property
    def fault(self) -> PointOutcome | None:
        """The first run that has no result."""
        return next((one for one in self.outcomes if one.status is not TaskStatus.DONE), None)

    def by_seed(self, metric: str) -> list[Any]:
        return [(one.result or {}).get(metric) for one in self.outcomes]

    def interval(self, metric: str) -> MeanInterval:
        """The mean of a metric over the seeds."""
        return mean_interval([value for value in self.by_seed(metric) if value is not None])

    def attains(self, least: float) -> bool:
        return fmean(value or 0.0 for value in self.by_seed(ATTAINMENT)) >= least


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedDeployment:
    """A candidate, and what the search found out about it.

    Attributes:
        candidate: what each replica is.
        verdict: what was found out.
        size: the numbers of servers. `meets`: the cheapest that meet the SLO. `dearer`: the
            cheapest that could. `misses`: the largest that were tried. Else None.
        judged: its runs with that size; None if there are none.
        fewer: sizes with one server fewer, and the runs with them, as far as there are any.
        reason: why it cannot run, or what failed.
        headroom: the share of the rate that can be added; None: not looked for.
        is_headroom_open: no rate that was tried is too high.
    """

    candidate: Candidate
    verdict: DeploymentVerdict
    size: Size | None = None
    judged: JudgedRuns | None = None
    fewer: tuple[tuple[Size, JudgedRuns], ...] = ()
    reason: str | None = None
    headroom: float | None = None
    is_headroom_open: bool = False

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
    def goodput_per_gpu(self) -> float | None:
        """Requests/s within the SLO, mean over the seeds, for each GPU."""
        goodput = self.interval(GOODPUT).mean
        return None if goodput is None or not self.num_gpus else goodput / self.num_gpus

    def interval(self, metric: str) -> MeanInterval:
        """The mean of a metric over the seeds."""
        return _EMPTY if self.judged is None else self.judged.interval(metric)

    def rank(self) -> tuple[object, ...]:
        """Sort key, less is better: cost, GPUs, headroom, attainment, number."""
        attainment = self.interval(ATTAINMENT).mean or 0.0
        number = self.candidate.number
        return (self.cost, self.num_gpus, -(self.headroom or 0.0), -attainment, number)
