"""What a request passes before the scheduler can see it: HTTP, tokenizer, messages."""

from sim.core.units import seconds_to_ns
from sim.des.clock import ARRIVAL, Clock, TimedEvent
from sim.des.replica import Replica, Wait
from sim.latency.host import HostSection
from sim.workload.workload import ScriptedRequest


class FrontEnd:
    """One server's front end: it prepares one request after another, in order of arrival.

    With 2 ms a request, three requests that arrive together reach the scheduler after 2, 4 and
    6 ms, each later by `front_end_s`.
    """

    def __init__(self, env: Clock, host: HostSection, server: Replica) -> None:
        """Pass requests on to `server`."""
        self._env = env
        self._server = server
        self._num_inside = 0
        self._latency_ns = seconds_to_ns(host.front_end_s)
        self._request_ns = seconds_to_ns(host.request_s)
        self._token_ns = host.prompt_token_s * 1e9
        self._free_ns = 0

    @property
    def num_unfinished(self) -> int:
        """Requests that were submitted here and have not ended; the router reads this."""
        return self._num_inside + self._server.num_unfinished

    def submit(self, request: ScriptedRequest) -> None:
        """A request arrives now; the scheduler gets it later."""
        work_ns = self._request_ns + round(self._token_ns * len(request.spec.prompt))
        self._free_ns = max(self._free_ns, self._env.now_ns) + work_ns
        delay_ns = self._free_ns + self._latency_ns - self._env.now_ns
        self._num_inside += 1
        self._env.process(self._pass_on(request, delay_ns))

    def _pass_on(self, request: ScriptedRequest, delay_ns: int) -> Wait:
        yield TimedEvent(self._env, delay_ns, ARRIVAL)
        self._num_inside -= 1
        self._server.submit(request)
