"""The queues in which requests of a server wait, by the server's role.

A server that computes whole requests has the waiting queue alone. A prefill server has two more
(`sim.sglang.scheduler.roles.prefill_server`), and a decode server has four of its own
(`sim.sglang.scheduler.roles.decode_server`).
"""

from collections.abc import Sequence

from sim.core.request import Status
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.server import SglangServer
from sim.sglang.scheduler.waiting.queue import Limits, WaitingQueue


class Queues:
    """The queues of a server that computes whole requests.

    Attributes:
        prefills, decodes: whether it computes prompts, and what follows them.
        drops_chunks: a chunked request whose client gives up is gone with the next decision. The
            loop of prefill servers with stages does not look for it
            (`event_loop_pp_disagg_prefill` in managers/scheduler_pp_mixin.py).
    """

    def __init__(self, server: SglangServer, waiting: WaitingQueue, limits: Limits | None) -> None:
        """`limits`: those of the waiting queue; None: there are none."""
        self.server = server
        self.waiting = waiting
        self._limits = limits
        self.prefills = self.decodes = self.drops_chunks = True

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, num_tokens: int) -> int:
        """How many tokens a request may generate here, of the `num_tokens` that it may in all."""
        return num_tokens

    def ever_fits(self, prompt_len: int, num_new_tokens: int) -> bool:
        """Whether the queues of this role can ever let a request of this size through."""
        return True

    def enter(self, request: SglangRequest) -> None:
        """Put a request into the first queue; if too many wait, one of them is dropped."""
        if self._limits is not None:
            dropped = self._limits.one_too_many(request)
            if dropped is not None:
                self.server.dropped.append(dropped)
                if dropped is request:
                    return
                self.waiting.remove(dropped)
        request.entered_ns = self.server.now_ns
        self.waiting.enter(request)

    def abort(self, request: SglangRequest) -> bool:
        """A waiting request is gone at once (True), any other ends with its next result."""
        if request.status is Status.WAITING:
            self.waiting.remove(request)
            return True
        return False

    def slot_freed(self, request: SglangRequest) -> None:
        """A request has given back its slot."""

    @property
    def num_waiting(self) -> int:
        return len(self.waiting.requests)

    @property
    def waiting_requests(self) -> Sequence[SglangRequest]:
        """The waiting requests, without KV here."""
        return self.waiting.requests

    @property
    def elsewhere(self) -> Sequence[SglangRequest]:
        """Requests that hold KV for another server, or whose KV comes from there."""
        return ()

    # ---- decode steps --------------------------------------------------------------------------

    def num_known_outputs(self, request: SglangRequest) -> int:
        """The output tokens of a running row that are known."""
        return request.num_generated

    def keeps_kv(self, request: SglangRequest) -> bool:
        """Whether a running request that is to be retracted can come back later."""
        return True

    def begin_decision(self, num_missed_steps: int) -> None:
        """A decision begins. Rows that have just joined are not in `num_missed_steps` in flight."""

    def end_decision(self) -> None:
        """The decision is made."""

    @property
    def repeats(self) -> bool:
        """Whether the queues of this role stay as they are while the same rows decode."""
        return True

    def decoded_again(self, num_steps: int) -> None:
        """The same rows have decoded `num_steps` times."""

    # ---- idle ----------------------------------------------------------------------------------

    def begin_idle(self) -> None:
        """A decision launched nothing, and nothing is in flight."""

    @property
    def waits_for_partner(self) -> bool:
        """Whether an idle server's next decision has to wait for another server."""
        return False
