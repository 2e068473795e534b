"""What a vLLM server's log says of how long its steps take.

With `--enable-logging-iteration-details` there is a line for each step, with its requests and
tokens and an elapsed time. That is not the step's time: it is how long the engine still waited for
the result when it had launched the step and, under async scheduling, the next one
(`EngineCore.capture_iteration_details` in `vllm/v1/engine/core.py`, 0.33.0; 0.26 writes the same).
So only the moments count at which lines were written. From one line to the next is the time of a
step, if a request of it ran in the step before.

Under async scheduling the line of a step is written after the launch of the next one. The launch of
a step with prompts takes long, and delays the line before its own:

    step                 decode   decode   prompts   decode   decode
    from line to line    7.7 ms    30 ms      4 ms   6.4 ms   7.7 ms

The sum is right. So steps with prompts are taken together with the decode steps around them, as a
chain.
"""

from calibrate.server_logs.times import (
    MOST,
    Chain,
    Groups,
    Iteration,
    LoggedTimes,
    check_amounts,
    whole,
)
from sim.core.errors import InputError
from sim.server_log.read import ServerLog
from sim.server_log.records import Kind, LogEvent

_US_PER_S = 1_000_000
# With a coarser clock a single step has no time.
_COARSEST_US = 1_000
# A longer chain is left out: a log may have any length.
_MOST_STEPS = 1_000


def read_iterations(log: ServerLog) -> LoggedTimes:
    """Read a log to its end. Only lines of the first rank count.

    Raises:
        InputError: the log cannot be read, or does not tell the times of steps.
    """
    reader = _Reader()
    num_lines = 0
    for event in log.events():
        if event.kind is Kind.ITERATION and not event.rank.dp:
            num_lines += 1
            check_amounts(log, event)
            if event.at_us is not None:
                reader.take(iteration_of(event, log))
    if not num_lines:
        reason = "has no lines of steps: start the server with --enable-logging-iteration-details"
        raise InputError(f"{log.name}: {reason}; statistics of ten seconds are too coarse to fit")
    if log.resolution_us > _COARSEST_US:
        reason = "its clock has whole seconds, longer than steps: have each line stamped as it is"
        how = "written, as docker logs -t or kubectl logs --timestamps do"
        raise InputError(f"{log.name}: {reason} {how}")
    return LoggedTimes(reader.groups.times(), chains=reader.chains)


def iteration_of(event: LogEvent, log: ServerLog) -> Iteration:
    """The step of a line. Raises InputError if contexts are not known from the log."""
    pool = log.server.kv_pool.num_tokens
    usage_pct = event.fields.get("kv_usage_pct")
    if pool is None or pool > MOST:
        reason = "does not say how large its KV pool is, so contexts are not known"
        raise InputError(f"{log.name}: {reason}")
    if not isinstance(usage_pct, float) or usage_pct > 100:
        reason = "does not say how much of its KV pool is used, so contexts are not known"
        raise InputError(f"{log.name}: line {event.line}: {reason}")
    prefill_tokens = whole(event, "num_prefill_tokens")
    return Iteration(
        number=whole(event, "step"),
        at_us=event.at_us or 0,
        prefill_rows=whole(event, "num_prefill_requests"),
        prefill_tokens=prefill_tokens,
        decode_rows=whole(event, "num_decode_requests"),
        context=max(0, round(usage_pct / 100 * pool) - prefill_tokens),
    )


class _Reader:
    """Takes the steps in their order, and looks at each between its neighbours."""

    def __init__(self) -> None:
        self.groups = Groups()
        self.chains: list[Chain] = []
        self._last: list[Iteration] = []
        self._chain: Chain | None = None

    def take(self, step: Iteration) -> None:
        if self._last and not _follows(self._last[-1], step):
            self._last, self._chain = [], None
        self._last.append(step)
        if len(self._last) == 3:
            self._look_at(*self._last)
            del self._last[0]

    def _look_at(self, before: Iteration, step: Iteration, after: Iteration) -> None:
        wall_s = (step.at_us - before.at_us) / _US_PER_S
        if not (before.prefill_rows or step.prefill_rows or after.prefill_rows):
            if self._chain is not None and self._chain.wall_s > 0:
                self.chains.append(self._chain)
            self._chain = None
            if wall_s > 0:
                self.groups.take(step.decode_rows, step.context, wall_s, in_graph=True)
            return
        if self._chain is None and not (before.prefill_rows or step.prefill_rows):
            self._chain = Chain()
        if self._chain is not None:
            self._chain.wall_s += wall_s
            self._chain.steps.append(step)
            if len(self._chain.steps) == _MOST_STEPS:
                self._chain = None


def _follows(before: Iteration, step: Iteration) -> bool:
    """Whether the server was busy with step from the end of the one before: they share a row."""
    in_order = step.number == before.number + 1 and step.at_us >= before.at_us
    return in_order and step.decode_rows > 0
