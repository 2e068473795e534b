"""What requests have been given since the last pass, for policies that share a server by service.

A policy or an admission of the user's is shown the waiting requests alone. `Served` keeps those
that it was shown, and asks each of them what has become of it. So nothing is counted where nobody
asks, and the counts are the same in the simulator, with fast-forward, and on a real server.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sim.core.request import Status
from sim.engine.request import NEVER_NS
from sim.sglang.request import SglangRequest


class Service(NamedTuple):
    """What one request has been given since the last call.

    Attributes:
        prompt_tokens: its whole prompt, if it was admitted for the first time, else 0.
        cached_tokens: those of them that the prefix cache held.
        output_tokens: output tokens that have become known.
        is_over: it has finished, or was aborted.
    """

    request: SglangRequest
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    is_over: bool


class _Seen:
    """A request that was shown, and what is known of it."""

    def __init__(self, request: SglangRequest) -> None:
        self.request = request
        self.was_admitted = request.scheduled_ns != NEVER_NS
        self.num_output = request.num_generated

    def news(self) -> Service:
        request, is_new, num_output = self.request, False, self.num_output
        if not self.was_admitted and request.scheduled_ns != NEVER_NS:
            self.was_admitted = is_new = True
        self.num_output = request.num_generated
        return Service(
            request,
            request.prompt_len if is_new else 0,
            request.cached_tokens if is_new else 0,
            self.num_output - num_output,
            request.status not in {Status.WAITING, Status.RUNNING},
        )


class Served:
    """The requests of one server that a policy was shown, until they are over."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def since_last(self, waiting: Sequence[SglangRequest]) -> list[Service]:
        """What each request has been given since the last call, oldest request first.

        Call it once a pass, with the whole queue: a request that was never in it is not counted.
        """
        news = [seen.news() for seen in self._seen.values()]
        for service in news:
            if service.is_over:
                del self._seen[id(service.request)]
        for request in waiting:
            if id(request) not in self._seen:
                self._seen[id(request)] = _Seen(request)
        return [each for each in news if each.prompt_tokens or each.output_tokens or each.is_over]

    @property
    def running(self) -> list[SglangRequest]:
        """The requests that are admitted and not over, as of now."""
        requests = [seen.request for seen in self._seen.values()]
        return [request for request in requests if request.status is Status.RUNNING]
