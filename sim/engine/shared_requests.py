"""What a scheduler does for requests that are shared with a server of another role."""

from typing import Generic

from mypy_extensions import mypyc_attr

from sim.engine.partner import NO_PARTNER
from sim.engine.running_batch import R


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedRequests(Generic[R]):
    """Base class of schedulers. The roles of engines call these methods (`sim.engine.role`).

    Attributes:
        partner: hears of requests that are shared with a server of another role.
        looks_while_sending: a server that has nothing to do but to send KV looks for its end.
    """

    def __init__(self) -> None:
        self.looks_while_sending = True
        self.partner = NO_PARTNER

    def hold(self, request: R) -> None:
        """On a prefill server: the prompt is computed, and its KV stays until it is sent."""

    def let_go(self, request: R) -> None:
        """On a prefill server: a held request's KV has left, or is not wanted; it ends next."""

    def discard(self, request: R) -> None:
        """On a prefill server: a request ends with its prompt, which nobody waits for any more."""
        raise NotImplementedError

    def begin_result(self) -> None:
        """The result of the oldest step in flight is taken in next."""

    def keeps_room(self, rid: str) -> bool:
        """On a decode server: blocks of a request that has ended wait for its KV."""
        return False

    def transfer_ended(self, rid: str, *, is_lost: bool) -> bool:
        """On a decode server: KV has arrived or is lost; returns whether its request ends so."""
        raise NotImplementedError

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        """On a prefill server: when KV is freed that was computed, and lost on its way."""
        raise NotImplementedError
