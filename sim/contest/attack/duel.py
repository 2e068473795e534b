"""A trace served by a contestant and by the reference, and the request that suffers most."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.contest.attack.streams import RequestStream, Row, TraceLimits, rows_of, trace_text
from sim.contest.plan import CONTESTANT, Contest
from sim.core.arrays import Float64
from sim.core.request import Status
from sim.core.units import NS_PER_S
from sim.runlog import RequestColumns, RunLog
from sim.scenario.load import LoadedScenario
from sim.scenario.strict_yaml import YamlValue
from sim.workload.traces.read import TraceReader
from sim.workload.traces.servetwin import read_servetwin

# Tokens of the requests that are served alone, to learn the pool's size and the unit of times.
_SHORT, _USUAL_PROMPT = 16, 1_000

Serve = Callable[[LoadedScenario, TraceReader], RunLog]


class Outcome(NamedTuple):
    """How both served a trace.

    Attributes:
        here, there: the requests of the contestant, and of the reference.
        victim: the row of the request that suffers most.
        score: the natural logarithm of its latency here over that there, each plus the unit of the
            search, so that nothing depends on requests that hardly take any time.
    """

    here: RequestColumns
    there: RequestColumns
    victim: int
    score: float


class Duel:
    """A contestant against the reference, under traces that are written to a file.

    Args:
        contest: with both.
        serve: simulates a scenario, whose trace is read as the second argument says.
        name: the contestant's.
        trace: where the worst trace will be; scenarios name it from the beginning.
        scratch: a folder for the traces that are tried.

    Attributes:
        unit_s: see `Outcome.score`; how long the prompt of a usual request takes alone.
        pool_tokens: KV tokens of a server, the smaller of the two.
    """

    def __init__(
        self, contest: Contest, serve: Serve, name: str, trace: Path, scratch: Path
    ) -> None:
        self.contest = contest
        self.name = name
        self.trace = trace
        self.names = name, contest.section.reference
        self._serve = serve
        self._scratch = scratch
        self._num_traces = 0
        self.unit_s, self.pool_tokens = 0.0, 0
        self._measure()

    def _measure(self) -> None:
        """Serve the prompt of a short request alone, and then one of a usual size for the pool.

        Raises:
            InputError: one of the two cannot serve it.
        """
        for _ in range(2):
            tokens = max(_SHORT, min(_USUAL_PROMPT, self.pool_tokens // 8))
            alone = RequestStream(1, 0.0, 1.0, tokens, 0, 1, 0)
            rows = rows_of([alone], TraceLimits(1.0, 1, 1, 1, has_priorities=False))
            logs = self._logs(rows)
            self.pool_tokens = min(int(str(log.meta["max_total_tokens"])) for log in logs)
            for name, log in zip(self.names, logs, strict=True):
                if not _all_finished(log.requests):
                    reason = f"does not serve a request of {tokens:,} tokens alone"
                    raise self.contest.base.error(("contest", "contestants", name), reason)
            self.unit_s = max(float(_latency_s(log.requests)[0]) for log in logs)

    @property
    def has_priorities(self) -> bool:
        """Whether the scheduler of one of the two is told to look at priorities."""
        plan = self.contest.plan
        return any("priority" in str(plan.bases[name].raw.get("scheduler")) for name in self.names)

    def workload(self) -> dict[str, YamlValue]:
        """The section of a scenario that replays the trace."""
        given = self.contest.base.raw["workload"]
        section: dict[str, YamlValue] = {
            "kind": "trace",
            "format": "servetwin",
            "path": str(self.trace.resolve()),
        }
        if isinstance(given, Mapping) and "predicted_output" in given:
            section["predicted_output"] = given["predicted_output"]
        return section

    def outcome(self, rows: Sequence[Row]) -> Outcome | None:
        """How both serve these requests; None: one of them does not serve them all."""
        here, there = (log.requests for log in self._logs(rows))
        if not (_all_finished(here) and _all_finished(there)):
            return None
        suffers = np.log((_latency_s(here) + self.unit_s) / (_latency_s(there) + self.unit_s))
        victim = int(np.argmax(suffers))
        return Outcome(here, there, victim, float(suffers[victim]))

    def _logs(self, rows: Sequence[Row]) -> list[RunLog]:
        """How each of `names` serves these requests."""
        # Every trace has a file of its own: a command may not write over a file that it has read.
        self._num_traces += 1
        path = self._scratch / f"{self._num_traces}.jsonl"
        path.write_text(trace_text(rows), encoding="utf-8")
        read = read_servetwin(path, limit=None)
        path.unlink()
        workload = self.workload()
        return [
            self._serve(
                self.contest.plan.vary({CONTESTANT: name, "workload": workload}),
                lambda _trace, _base_dir: read,
            )
            for name in self.names
        ]


def _all_finished(requests: RequestColumns) -> bool:
    return set(requests.status) == {Status.FINISHED.value}


def _latency_s(requests: RequestColumns) -> Float64:
    """From arrival to the last token, by request; shape [num_requests]."""
    return np.asarray((requests.finish_ns - requests.arrival_ns) / NS_PER_S, np.float64)
