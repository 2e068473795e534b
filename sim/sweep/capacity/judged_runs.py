"""The runs of a deployment under some load, and whether they meet the SLO."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sim.confidence.judged import ATTAINMENT, judged, judged_attainment
from sim.metrics.early_stop import most_attainment
from sim.metrics.points import MeanInterval, mean_interval
from sim.metrics.summary import Summary
from sim.scenario.search_sections import JudgedBy, PlanSection
from sim.sweep.store import PointOutcome
from sim.workers.executor import TaskStatus

POWER, W_PER_KW = "mean_power_w", 1e3


def most_of(outcome: PointOutcome) -> float:
    """The SLO attainment of a run; if it was stopped, what it is at most."""
    result = outcome.result or {}
    if outcome.status is TaskStatus.STOPPED:
        return most_attainment(result)
    return float(result.get(ATTAINMENT) or 0.0)


@dataclass(frozen=True, slots=True)
class JudgedRuns:
    """The runs of a deployment under some load, one for each seed.

    Attributes:
        outcomes: of the first seeds. Some runs may have been stopped, because it was certain that
            the deployment misses the SLO.
        num_left: how many seeds were not run for the same reason.
    """

    outcomes: tuple[PointOutcome, ...]
    num_left: int = 0

    @property
    def fault(self) -> PointOutcome | None:
        """The first run that failed."""
        fine = {TaskStatus.DONE, TaskStatus.STOPPED}
        return next((one for one in self.outcomes if one.status not in fine), None)

    @property
    def is_whole(self) -> bool:
        """Whether all runs went on to their ends. If not, all that is known is: it misses the SLO.

        So metrics then have no values.
        """
        return not self.num_left and not self.stopped

    @property
    def stopped(self) -> list[Summary]:
        """What is known of each run that was stopped (`StoppedRun`)."""
        found = (one.result for one in self.outcomes if one.status is TaskStatus.STOPPED)
        return [result for result in found if result is not None]

    @property
    def most_attainment(self) -> float | None:
        """What the SLO attainment of runs that are not whole is at most; None: they are whole."""
        if self.is_whole:
            return None
        return fmean([*map(most_of, self.outcomes), *([1.0] * self.num_left)])

    def by_seed(self, metric: str) -> list[Any]:
        if not self.is_whole:
            return []
        return [(one.result or {}).get(metric) for one in self.outcomes]

    def interval(self, metric: str) -> MeanInterval:
        """The mean of a metric over the seeds."""
        return mean_interval([value for value in self.by_seed(metric) if value is not None])

    @property
    def num_rejected(self) -> int:
        """Requests that no server takes, for example because they are too long, with all seeds."""
        return sum(value or 0 for value in self.by_seed("rejected"))

    def num_busy(self, num_servers: int) -> float | None:
        """How many servers the traffic would keep busy, if it kept all `num_servers` of a run busy.

        That is `num_servers` x offered rate / served rate, with the first seed. None: there is no
        rate.
        """
        [first, *_] = self.outcomes
        result = first.result or {}
        rate, served = result.get("request_rate"), result.get("request_throughput")
        return num_servers * rate / served if rate and served else None

    @property
    def power_kw(self) -> float | None:
        """Mean power of all GPUs; None: not measured."""
        watts = self.interval(POWER).mean
        return None if watts is None else watts / W_PER_KW

    def exceeds(self, section: PlanSection) -> bool:
        """Whether it draws more power than is allowed, as far as its power is known."""
        known, most = self.power_kw, section.max_kw
        return known is not None and most is not None and known > most

    def attains(self, section: PlanSection) -> bool:
        """Whether enough requests keep the SLO, and none was rejected.

        If the most load is sought, also whether it draws no more power than is allowed: less load
        draws less. More servers draw more, so a search for the least cost does not go on for that.
        """
        if not self.is_whole or (section.objective == "load" and self.exceeds(section)):
            return False
        share = fmean(value or 0.0 for value in self.attainments(section.judged_by))
        return not self.num_rejected and share >= section.min_slo_attainment

    def attainments(self, judged_by: JudgedBy) -> list[float | None]:
        """The SLO attainment of each seed, with the latencies that `judged_by` names."""
        return [judged(one.result or {}, ATTAINMENT, judged_by) for one in self.outcomes]

    def is_as_simulated(self, judged_by: JudgedBy) -> bool:
        """Whether the attainment of every seed is the simulated one: none was found otherwise."""
        return all(judged_attainment(one.result or {}, judged_by) is None for one in self.outcomes)
