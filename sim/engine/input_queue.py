"""Requests that have arrived and that the scheduler has not seen yet.

The scheduler looks into its input queue when it makes a decision: it *polls*. A server may skip
polls while it decodes, because each costs host time (rule 19 of docs/explanation/sglang.md).
"""

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol

from sim.core.batch import ForwardMode
from sim.engine.request import NEVER_NS, Request
from sim.engine.running_batch import R

# What a step of other modes than decode adds to the counter.
_PREFILL_WEIGHT = 1000


class InputQueue(Generic[R]):
    """Requests between their arrival and the poll that receives them.

    A counter grows at each decision: by 1 if the decision before launched a decode step or nothing,
    by 1000 if it launched prefill rows. A decision polls if the counter has reached `interval`,
    which resets the counter. Example with interval 3, after a poll:

        the decision before launched   prefill  decode  decode  decode  decode
        counter                        1000     1       2       3       1
        polls                          yes      -       -       yes     -

    An idle server decides again at once, until it polls. That takes no time here.

    Attributes:
        requests: the requests that were not received yet, in order of arrival.
        given_up: requests whose clients have given up since the last poll, each with the number of
            `requests` that had arrived before.
        has_polled: the last decision polled.
    """

    def __init__(self, interval: int) -> None:
        self.requests: list[R] = []
        self.given_up: list[tuple[int, R]] = []
        self.has_polled = False
        self._interval = interval
        self._counter = 0
        self._last_mode: ForwardMode | None = None
        self._is_idle = True

    def note_decision(self, mode: ForwardMode | None, *, is_idle: bool) -> None:
        """Note what a decision launched.

        Args:
            mode: the mode of the launch; None: nothing was launched.
            is_idle: nothing was launched, and no step is in flight.
        """
        self._last_mode = mode
        self._is_idle = is_idle

    def poll(self) -> list[R]:
        """Begin a decision; returns the requests that it receives."""
        decodes_or_not = self._last_mode is None or self._last_mode is ForwardMode.DECODE
        self._counter += 1 if decodes_or_not else _PREFILL_WEIGHT
        if self._counter < self._interval and not self._is_idle:
            self.has_polled = False
            return []
        self._counter = 0
        self.has_polled = True
        return self.take()

    @property
    def is_empty(self) -> bool:
        return not (self.requests or self.given_up)

    def take(self) -> list[R]:
        """Remove and return the requests, for a decision that polls."""
        received, self.requests = self.requests, []
        return received

    # ---- fast-forward --------------------------------------------------------------------------

    @property
    def num_unpolled_steps(self) -> int:
        """How many decode steps can be decided before a decision polls."""
        return max(self._interval - self._counter - 1, 0)

    def next_poll(self, step: int) -> int:
        """The first of the next decode steps whose decision polls, at or after `step` (from 0)."""
        first, interval = self.num_unpolled_steps, self._interval
        return first + max(-(-(step - first) // interval), 0) * interval

    def pass_decisions(self, num_steps: int) -> None:
        """Decide `num_steps` decode steps, without requests to receive."""
        since_poll = num_steps - self.num_unpolled_steps - 1
        if since_poll < 0:
            self._counter += num_steps
        else:
            self._counter = since_poll % self._interval


class _HasRequests(Protocol):
    """An engine; requests are by rid, and live."""

    requests: dict[str, Request]
    input_queue: InputQueue[Request]

    @property
    def num_unanswered(self) -> int:
        """Requests whose answer is not complete."""


class FrontEndLimits:
    """The front end refuses a request if there are too many, or too many prompt tokens."""

    def __init__(self, max_requests: int | None, max_prompt_tokens: int | None) -> None:
        """Set the limits.

        Args:
            max_requests: most requests that wait or run; None: no limit.
            max_prompt_tokens: prompt tokens of the requests that have no first token yet, from
                which on the front end refuses any; None: no limit.
        """
        self._max_requests = max_requests
        self._max_prompt_tokens = max_prompt_tokens

    def refuse(self, engines: Sequence[_HasRequests]) -> bool:
        """Whether the front end of these engines refuses one more request."""
        # The engine learns later that a client has given up; the front end does not count it now.
        gone = {request.rid for each in engines for _, request in each.input_queue.given_up}
        if self._max_requests is not None:
            num_requests = sum([engine.num_unanswered for engine in engines]) - len(gone)
            if num_requests >= self._max_requests:
                return True
        if self._max_prompt_tokens is None:
            return False
        requests: Iterable[Request] = [r for each in engines for r in each.requests.values()]
        # A server may leave tokens of a prompt to another one; the front end does not know.
        prompts = [
            len(r.spec.prompt)
            for r in requests
            if r.first_token_ns == NEVER_NS and r.rid not in gone
        ]
        return sum(prompts) >= self._max_prompt_tokens
