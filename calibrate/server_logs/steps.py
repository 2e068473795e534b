"""What an SGLang server's log says of how long its steps take.

A decode line has the rate at which tokens were generated since the decode line before, so the time
between both: with `decode_log_interval=1` the period of a step. Neighbouring periods are uneven,
because a result is logged when the host gets to it, so steps are taken together.

A prefill line has no duration. Its batch delays the decode line after it, but by less than it took:
SGLang looks at the clock when it has something to log. So the time of prefill batches is what the
wall clock has left when all decode steps of a stretch are taken out:

    wall clock    |-------------------- 21 s ---------------------|
    decode steps  1,100 of 15.9 ms: 17.5 s
    left          3.5 s for 31 prefill batches with 28,600 tokens

The wall clock of a log has whole seconds, so stretches are long. After an idle time the periods
are right to the millisecond, too: the first decode line is as late as the first batches took.
"""

from collections import deque

from calibrate.server_logs.times import Groups, LoggedTimes, Stretch, check_amounts, whole
from sim.core.errors import InputError
from sim.server_log.read import ServerLog
from sim.server_log.records import Kind, LogEvent

_US_PER_S = 1_000_000
# A line for more decode steps than this says nothing of a single one.
_MOST_STEPS = 10_000
# Tokens of all rows a second, and with drafts the tokens that a step gives a row.
_RATES = ("generated_tokens_per_s", "accepted_tokens_per_step")
# Decode lines after a prefill line whose periods may have parts of the prefill.
_NUM_DELAYED = 4
# Decode lines before a prefill line that may have parts of it, too.
_NUM_BEFORE = 2
# The server was idle if it logged nothing for longer.
_IDLE_US = 3 * _US_PER_S
# A longer time between two decode lines contains an idle time.
_LONGEST_WAVE_S = 20.0
# Fewer prompt tokens after an idle time are a health check, not a client's requests.
_FEWEST_TOKENS = 1_000
# The wall clock is compared with the decode steps of stretches of at least this length.
_STRETCH_US = 20 * _US_PER_S


def read_times(log: ServerLog) -> LoggedTimes:
    """Read a log to its end. Only lines of the first rank count.

    Raises:
        InputError: the log cannot be read, or does not say how often it has decode lines.
    """
    reader = _Reader()
    for event in log.events():
        is_first_rank = not any((event.rank.dp, event.rank.pp, event.rank.tp, event.rank.ep))
        if event.kind in {Kind.PREFILL, Kind.DECODE} and is_first_rank:
            check_amounts(log, event)
            reader.take(event, decode_log_interval(log))
    return LoggedTimes(reader.groups.times(), reader.stretches, reader.batches)


def decode_log_interval(log: ServerLog) -> int:
    """How many decode steps there are from one decode line to the next.

    Raises:
        InputError: the log does not say, or says far too many.
    """
    given = log.server.flags.get("decode_log_interval")
    if type(given) is not int or given < 1:
        reason = "does not say its decode_log_interval: the line with server_args is missing"
        raise InputError(f"{log.name}: {reason}")
    if given > _MOST_STEPS:
        raise InputError(f"{log.name}: decode_log_interval: {given} is over {_MOST_STEPS:,}")
    return given


class _Reader:
    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self.batches: list[tuple[int, int, int]] = []
        self.groups = Groups()
        self._calm: deque[tuple[int, int, bool, float]] = deque()
        self._num_calm = 0
        self._before_us: int | None = None
        self._start_us = 0
        self._stretch = Stretch()
        self._wave: Stretch | None = None

    def take(self, event: LogEvent, interval: int) -> None:
        at_us = event.at_us
        if at_us is None:
            return
        # A clock that goes back begins anew, too.
        is_idle = self._before_us is None or not 0 <= at_us - self._before_us <= _IDLE_US
        self._before_us = at_us
        if is_idle:
            self._begin(at_us)
        if event.kind is Kind.PREFILL:
            if self._wave is None and not whole(event, "num_running"):
                self._wave = Stretch(after_idle=True)
            self._take_prefill(event)
        else:
            self._take_decode(event, at_us, interval)

    def _begin(self, at_us: int) -> None:
        self._start_us, self._stretch, self._wave = at_us, Stretch(), None

    def _take_prefill(self, event: LogEvent) -> None:
        num_tokens = whole(event, "num_new_tokens")
        num_rows, num_cached = (
            whole(event, name) for name in ("num_new_requests", "num_cached_tokens")
        )
        self.batches.append((num_tokens, num_rows, num_cached))
        self._num_calm = 0
        self._calm.clear()
        for stretch in (self._stretch, self._wave):
            if stretch is not None:
                stretch.num_batches += 1
                stretch.num_tokens += num_tokens

    def _take_decode(self, event: LogEvent, at_us: int, interval: int) -> None:
        rows = whole(event, "num_running")
        tokens = whole(event, "num_used_tokens") or whole(event, "num_used_full_tokens")
        rate, accepted = (event.fields.get(name) for name in _RATES)
        if not rows or not isinstance(rate, int | float) or rate <= 0:
            return
        per_row = accepted if isinstance(accepted, int | float) and accepted >= 1 else 1
        period_s = rows * per_row * interval / rate
        self._stretch.decodes += [(rows, tokens)] * interval
        wave, self._wave = self._wave, None
        # With one batch alone nothing tells it from any other one.
        is_wave = wave is not None and wave.num_batches > 1 and wave.num_tokens >= _FEWEST_TOKENS
        if wave is not None and is_wave and period_s < _LONGEST_WAVE_S:
            wave.decodes.append((rows, tokens))
            wave.wall_s = period_s
            self.stretches.append(wave)
        if self._num_calm >= _NUM_DELAYED:
            in_graph = event.fields.get("uses_graph") is not False
            self._calm.append((rows, tokens, in_graph, period_s / interval))
            if len(self._calm) > _NUM_BEFORE:
                rows_then, tokens_then, graph_then, step_s = self._calm.popleft()
                self.groups.take(rows_then, tokens_then, step_s, in_graph=graph_then)
            if at_us - self._start_us >= _STRETCH_US:
                self._end_stretch(at_us)
        self._num_calm += 1

    def _end_stretch(self, at_us: int) -> None:
        self._stretch.wall_s = (at_us - self._start_us) / _US_PER_S
        if self._stretch.num_batches:
            self.stretches.append(self._stretch)
        self._start_us, self._stretch = at_us, Stretch()
