"""Inter-token latencies without visiting every request at every step.

Requests that decode together get their tokens together, so the gap between two steps counts once
for each of them. A request has a gap of its own only after joining, or over a retraction.
"""

from array import array

import numpy as np
from numpy.typing import NDArray

from sim.engine.request import NEVER_NS, Request

# A request's last token came with the clock's last tick.
_TICKING_NS = -(1 << 62)


class TokenClock:
    """Counts gaps between consecutive tokens of a request, grouped by length.

    `gap_ns[i]` was seen `count[i]` times; both int64.
    """

    def __init__(self) -> None:
        self.gap_ns = array("q")
        self.count = array("q")
        self._num_ticking = 0
        self._last_tick_ns = 0
        # Requests whose last token came from a prefill: their next gap is their own.
        self._joined: dict[int, Request] = {}

    def join(self, request: Request, now_ns: int) -> None:
        """A request got a token from its prefill and decodes from here on."""
        self.late(request, now_ns)
        self._joined[id(request)] = request

    def resume(self, request: Request) -> None:
        """A request that had left decodes again, without a token from a prefill."""
        if request.last_token_ns != _TICKING_NS:
            self._joined[id(request)] = request

    def leave(self, request: Request) -> None:
        """A request decodes no more, for now or for good; nothing happens if it never did."""
        if self._joined.pop(id(request), None) is None and request.last_token_ns == _TICKING_NS:
            self._num_ticking -= 1
            request.last_token_ns = self._last_tick_ns

    def late(self, request: Request, now_ns: int) -> None:
        """A token of a request that does not tick: of its prefill, or after it has left."""
        if request.last_token_ns != NEVER_NS:
            self._add(now_ns - request.last_token_ns, 1)
        request.last_token_ns = now_ns

    def tick(self, now_ns: int) -> None:
        """Every request that decodes got a token."""
        if self._num_ticking:
            self._add(now_ns - self._last_tick_ns, self._num_ticking)
        for request in self._joined.values():
            self._add(now_ns - request.last_token_ns, 1)
            request.last_token_ns = _TICKING_NS
        self._num_ticking += len(self._joined)
        self._joined.clear()
        self._last_tick_ns = now_ns

    def tick_many(self, ends_ns: NDArray[np.int64]) -> None:
        """`tick` at each of these times, shape [num_steps]."""
        self.tick(int(ends_ns[0]))
        if self._num_ticking and len(ends_ns) > 1:
            gaps_ns = ends_ns[1:] - ends_ns[:-1]
            self.gap_ns.frombytes(gaps_ns.tobytes())
            self.count.extend(array("q", (self._num_ticking,)) * len(gaps_ns))
        self._last_tick_ns = int(ends_ns[-1])

    def forget(self) -> None:
        """Drop the gaps: a log has them now."""
        self.gap_ns, self.count = array("q"), array("q")

    def _add(self, gap_ns: int, count: int) -> None:
        self.gap_ns.append(gap_ns)
        self.count.append(count)
