"""Past-future admission: a request is admitted if the memory will suffice until all have ended.

Rule: the past gives each running and waiting request a length, drawn from those of the last
`window` outputs that are longer than what it has generated. The future is how the requests then
grow, and end one after another: what they hold at most is the memory that is needed. Requests are
admitted in the order of the queue while that is within the pool, less a reserve.

Source: R. Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025
(arXiv 2507.10150), the scheduler of LightLLM.

What differs: a request keeps the place in the distribution that it has drawn, so that asking again
in the next step cannot admit it by luck. Shared prefixes count for each request. The server's own
reservation still holds: `clip_max_new_tokens: 1` leaves the decision to this class.
"""

import random
from bisect import bisect_right
from collections import deque

from sim.core.request import Status
from sim.sglang.served import Served


class PastFuture:
    """Selects the first requests of the queue whose memory will suffice."""

    def __init__(self, config, *, window=1000, reserve_pct=5.0, seed=1):
        self.usable_tokens = config.pool_tokens * (1 - reserve_pct / 100)
        self._past = deque(maxlen=window)
        self._served = Served()
        self._random = random.Random(seed)
        self._places = {}

    def candidates(self, waiting, num_slots):
        for given in self._served.since_last(waiting):
            request = given.request
            if given.is_over:
                self._places.pop(request.rid, None)
            if request.status is Status.FINISHED:
                self._past.append(request.num_generated)
        past = sorted(self._past)
        rows = [self._row(request, past) for request in self._served.running]
        chosen = []
        for request in waiting[: max(num_slots, 1)]:
            rows.append(self._row(request, past))
            if peak_tokens(rows) > self.usable_tokens and len(rows) > 1:
                break
            chosen.append(request)
        return chosen

    def _row(self, request, past):
        """(tokens left to generate, tokens held) of a request; without a past, up to its limit."""
        if request.rid not in self._places:
            self._places[request.rid] = self._random.random()
        longer = past[bisect_right(past, request.num_generated) :]
        length = (
            longer[int(self._places[request.rid] * len(longer))]
            if longer
            else request.max_new_tokens
        )
        left = min(length, request.max_new_tokens) - request.num_generated
        return max(left, 1), request.num_tokens


def peak_tokens(rows):
    """The most that rows of (tokens left, tokens held) will hold: just before one of them ends."""
    peak = held_tokens = 0
    for num_rows, (left, held) in enumerate(sorted(rows, reverse=True), 1):
        held_tokens += held
        peak = max(peak, held_tokens + left * num_rows)
    return peak
