"""What a request passes before the scheduler can see it: HTTP, tokenizer, messages."""

import heapq

from sim.core.units import seconds_to_ns
from sim.des.clock import ARRIVAL, Clock, TimedEvent
from sim.des.replicas.replica import Replica, Wait
from sim.latency.host import HostSection
from sim.workload.workload import ScriptedRequest


class FrontEnd:
    """One server's front end: each of its processes prepares one request after another.

    A request goes to the process that has been free for longest, or will be free first. With one
    process and 2 ms a request, three requests that arrive together reach the scheduler after 2, 4
    and 6 ms; with two processes after 2, 2 and 4 ms. All are later by `front_end_s`.
    """

    def __init__(
        self, env: Clock, host: HostSection, server: Replica, num_processes: int = 1
    ) -> None:
        """Pass requests on to `server`."""
        self._env = env
        self._server = server
        self._num_inside = 0
        self._latency_ns = seconds_to_ns(host.front_end_s)
        self._request_ns = seconds_to_ns(host.request_s)
        self._token_ns = host.prompt_token_s * 1e9
        # When each process is free, the number of requests before its last one, and its number.
        self._processes = [(0, number, number) for number in range(num_processes)]
        self._num_requests = num_processes

    @property
    def num_unfinished(self) -> int:
        """Requests that were submitted here and have not ended; the router reads this."""
        return self._num_inside + self._server.num_unfinished

    def submit(self, request: ScriptedRequest) -> None:
        """A request arrives now; the scheduler gets it later."""
        work_ns = self._request_ns + round(self._token_ns * len(request.spec.prompt))
        free_ns, _, number = self._processes[0]
        free_ns = max(free_ns, self._env.now_ns) + work_ns
        heapq.heapreplace(self._processes, (free_ns, self._num_requests, number))
        self._num_requests += 1
        delay_ns = free_ns + self._latency_ns - self._env.now_ns
        self._num_inside += 1
        self._env.process(self._pass_on(request, number, delay_ns))

    def _pass_on(self, request: ScriptedRequest, number: int, delay_ns: int) -> Wait:
        yield TimedEvent(self._env, delay_ns, ARRIVAL)
        self._num_inside -= 1
        self._server.submit(request, number)
