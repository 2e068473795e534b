"""How many requests the front end of a server lets in."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from sim.engine.input_queue import InputQueue
from sim.engine.request import NEVER_NS, Request


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
