"""What servers report to: the run log, the decision log, and clients that wait for an answer."""

from collections.abc import Callable, Iterable

from simpy.events import Event

from sim.core.request import RequestSpec
from sim.engine.records import RequestRecord
from sim.runlog.builder import RunLogBuilder
from sim.runlog.decisions import DecisionLog
from sim.runlog.steps import StepRun

Watcher = Callable[[int, int], None]


class SimulationLog:
    """Takes facts in as they happen.

    Args:
        decisions: also write every step there.
        watcher: called with requests over and the time, for a progress bar.
    """

    def __init__(
        self, decisions: DecisionLog | None = None, watcher: Watcher | None = None
    ) -> None:
        self.builder = RunLogBuilder()
        self._decisions = decisions
        self._watcher = watcher
        self._awaited: dict[str, Event] = {}

    def when_over(self, rid: str, event: Event) -> None:
        """Trigger the event when the request is over, however it ends."""
        self._awaited[rid] = event

    def submitted(self, spec: RequestSpec, replica: int) -> None:
        self.builder.submitted(spec, len(spec.prompt), replica)

    def over(self, records: Iterable[RequestRecord], now_ns: int) -> None:
        for record in records:
            self.builder.over(record)
            event = self._awaited.pop(record.spec.rid, None)
            if event is not None:
                event.succeed()
            if self._watcher is not None:
                self._watcher(self.builder.num_over, now_ns)

    def stepped(self, run: StepRun) -> None:
        self.builder.stepped(run)
        if self._decisions is not None:
            self._decisions.stepped(run)
