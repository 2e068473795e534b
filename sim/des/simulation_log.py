"""Takes the reports of all servers: fills the logs, and wakes clients whose request has ended."""

from collections.abc import Callable, Iterable

from simpy.events import Event

from sim.core.request import RequestSpec
from sim.engine.records import RequestRecord
from sim.runlog.builder import RunLogBuilder, StepRun
from sim.runlog.decisions import DecisionLog

Watcher = Callable[[int, int], None]


class SimulationLog:
    """The log of a simulation while it runs.

    Args:
        decisions: a decision log that gets every step too.
        watcher: called with the number of ended requests and the time, for a progress bar.
    """

    def __init__(
        self, decisions: DecisionLog | None = None, watcher: Watcher | None = None
    ) -> None:
        self.builder = RunLogBuilder()
        self._decisions = decisions
        self._watcher = watcher
        self._awaited: dict[str, Event] = {}

    def when_over(self, rid: str, event: Event) -> None:
        """Trigger `event` when the request has finished, or was rejected or aborted."""
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
