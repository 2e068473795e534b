"""Measures inter-token latencies without visiting every request in every step.

Requests that decode together get their tokens at the same times. So one gap between two steps,
with the number of these requests, stands for all of them. A gap is measured for a single request
only when it joins the batch, and when it gets a token outside the batch.
"""

from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Narrow, NarrowColumn, narrowed
from sim.engine.request import NEVER_NS, Request

# Gaps that are narrowed together.
_GAPS_A_PIECE = 1 << 14
# Stands in `last_token_ns` for "at the clock's last tick".
_TICKING_NS = -(1 << 62)


class TokenClock:
    """Collects the gaps between consecutive tokens of a request.

    The gap `gap_ns[i]` occurred `count[i]` times; both int64. With `keeps_times`, which is set
    before the first token, it ended at `at_ns[i]`. These are the latest gaps: `take` returns all.
    """

    def __init__(self) -> None:
        self.gap_ns = array("q")
        self.count = array("q")
        # When each gap ended; empty unless a log needs it.
        self.at_ns = array("q")
        self.keeps_times = False
        self._narrow: list[tuple[Narrow, ...]] = []
        self._num_ticking = 0
        self._last_tick_ns = 0
        # Requests that joined after the last tick. Their next gaps are measured one by one.
        self._joined: dict[int, Request] = {}

    def join(self, request: Request, now_ns: int) -> None:
        """A request's prefill computed a token; from now on the request decodes."""
        self.single_token(request, now_ns)
        self._joined[id(request)] = request

    def resume(self, request: Request) -> None:
        """A request that had left decodes again, without a new prefill."""
        if request.last_token_ns != _TICKING_NS:
            self._joined[id(request)] = request

    def leave(self, request: Request) -> None:
        """A request stops decoding: it rests, was put back, or has ended."""
        if self._joined.pop(id(request), None) is None and request.last_token_ns == _TICKING_NS:
            self._num_ticking -= 1
            request.last_token_ns = self._last_tick_ns

    def single_token(self, request: Request, now_ns: int) -> None:
        """A request got a token outside the running batch: from a prefill, or after it has left."""
        if request.last_token_ns != NEVER_NS:
            self._add(now_ns - request.last_token_ns, 1, now_ns)
        request.last_token_ns = now_ns

    def tick(self, now_ns: int, rows: Iterable[Request] = ()) -> None:
        """Every decoding request got a token: `rows`, which only a `RowClock` looks at."""
        if self._num_ticking:
            self._add(now_ns - self._last_tick_ns, self._num_ticking, now_ns)
        for request in self._joined.values():
            self._add(now_ns - request.last_token_ns, 1, now_ns)
            request.last_token_ns = _TICKING_NS
        self._num_ticking += len(self._joined)
        self._joined.clear()
        self._last_tick_ns = now_ns

    def tick_many(self, ends_ns: NDArray[np.int64]) -> None:
        """`tick` at each time of `ends_ns`; int64, shape [num_steps]."""
        self.tick(int(ends_ns[0]))
        if self._num_ticking and len(ends_ns) > 1:
            gaps_ns = ends_ns[1:] - ends_ns[:-1]
            self.gap_ns.frombytes(gaps_ns.tobytes())
            self.count.extend(array("q", (self._num_ticking,)) * len(gaps_ns))
            if self.keeps_times:
                self.at_ns.frombytes(ends_ns[1:].tobytes())
        self._last_tick_ns = int(ends_ns[-1])

    def take(self) -> tuple[NarrowColumn, NarrowColumn, NarrowColumn | None]:
        """All gaps, how often each occurred, and when each ended if that is kept; forget them."""
        self._store()
        gap_ns = NarrowColumn([pieces[0] for pieces in self._narrow])
        count = NarrowColumn([pieces[1] for pieces in self._narrow])
        at_ns = None
        if self.keeps_times:
            at_ns = NarrowColumn([pieces[2] for pieces in self._narrow])
        self.forget()
        return gap_ns, count, at_ns

    def forget(self) -> None:
        """Drop the gaps."""
        self._narrow.clear()
        self.gap_ns, self.count, self.at_ns = array("q"), array("q"), array("q")

    def _store(self) -> None:
        """Store the latest gaps in little memory."""
        if self.gap_ns:
            columns = [self.gap_ns, self.count]
            if self.keeps_times:
                columns.append(self.at_ns)
            self._narrow.append(
                tuple([narrowed(np.array(column, dtype=np.int64)) for column in columns])
            )
            self.gap_ns, self.count, self.at_ns = array("q"), array("q"), array("q")

    def _add(self, gap_ns: int, count: int, now_ns: int) -> None:
        if len(self.gap_ns) >= _GAPS_A_PIECE:
            self._store()
        self.gap_ns.append(gap_ns)
        self.count.append(count)
        if self.keeps_times:
            self.at_ns.append(now_ns)


class RowClock(TokenClock):
    """The same where requests do not all get a token in each step: pipelines and speculation."""

    def join(self, request: Request, now_ns: int) -> None:
        self.single_token(request, now_ns)

    def resume(self, request: Request) -> None:
        """Nothing to do: the next gap is measured for this request alone."""

    def leave(self, request: Request) -> None:
        """Nothing to do."""

    def tick(self, now_ns: int, rows: Iterable[Request] = ()) -> None:
        """These decoding requests got a token; those of other steps in flight did not."""
        gaps_ns: Counter[int] = Counter()
        for request in rows:
            gaps_ns[now_ns - request.last_token_ns] += 1
            request.last_token_ns = now_ns
        for gap_ns, count in gaps_ns.items():
            self._add(gap_ns, count, now_ns)

    def tokens(self, request: Request, num_tokens: int, now_ns: int) -> None:
        """A request got several tokens at once: between them are gaps of 0."""
        self.single_token(request, now_ns)
        if num_tokens > 1:
            self._add(0, num_tokens - 1, now_ns)
