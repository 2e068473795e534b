"""Ends a run as soon as its SLO attainment is certain to be lower than what matters.

A search for deployments asks of most runs only whether enough requests keep the SLO. A request that
has ended and missed it stays missed. So attainment is at most

    most = (requests of the run - missed so far) / requests of the run

and once that is too low, nothing that is still to come can change the answer.
"""

from typing import Any

from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from sim.core.request import Status
from sim.core.units import NS_PER_MS
from sim.engine.records import RequestRecord
from sim.metrics.latencies import Slo
from sim.runlog import NOT_YET_NS
from sim.validation import Count


class StoppedRun(TypedDict):
    """What is known of a run that was stopped; it stands in place of a summary.

    `num_requests` are all of the run, of which `num_ended` had ended: `num_kept` of them within the
    SLO, and `num_rejected` rejected.
    """

    num_requests: Count
    num_ended: Count
    num_kept: Count
    num_rejected: Count


class RunStoppedError(BaseException):
    """Ends a simulation early; its only argument is a `StoppedRun`.

    It is no `Exception`, because nothing on the way may take it for a fault.
    """


class MissCounter:
    """Follows the requests of a run, and stops it when its attainment is certain to be too low."""

    def __init__(self, slo: Slo, num_requests: int, least: float) -> None:
        """Stop a run of `num_requests` when less than the share `least` of them can keep `slo`."""
        self._limits_ms = slo.limits_ms()
        self._least = least
        self._run: StoppedRun = {
            "num_requests": num_requests,
            "num_ended": 0,
            "num_kept": 0,
            "num_rejected": 0,
        }

    def ended(self, record: RequestRecord) -> None:
        """Take in a request that has ended. Requests of a warm-up are not measured.

        Raises RunStoppedError: the attainment will be lower than what matters.
        """
        if record.spec.warm_up:
            return
        self._run["num_ended"] += 1
        self._run["num_rejected"] += record.status is Status.REJECTED
        if self._keeps(record):
            self._run["num_kept"] += 1
        elif most_attainment(self._run) < self._least:
            raise RunStoppedError(self._run)

    def _keeps(self, record: RequestRecord) -> bool:
        """Whether a request kept the SLO: as `sim.metrics.summary` says it of columns."""
        if record.status is not Status.FINISHED:
            return False
        arrival_ns, first_ns = record.spec.arrival_ns, record.first_token_ns
        found_ms = {"e2e_latency": (record.finish_ns - arrival_ns) / NS_PER_MS}
        if first_ns != NOT_YET_NS:
            found_ms["ttft"] = (first_ns - arrival_ns) / NS_PER_MS
            if record.output_tokens > 1:
                decode_ms = (record.finish_ns - first_ns) / NS_PER_MS
                found_ms["tpot"] = decode_ms / (record.output_tokens - 1)
        # A latency that is not defined keeps every limit.
        return all(found_ms.get(name, 0.0) <= limit for name, limit in self._limits_ms.items())


def most_attainment(run: "StoppedRun | dict[str, Any]") -> float:
    """The share of a stopped run's requests that may have kept the SLO, at most."""
    num_missed = run["num_ended"] - run["num_kept"]
    return float((run["num_requests"] - num_missed) / run["num_requests"])
