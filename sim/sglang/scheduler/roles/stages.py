"""What the stages of a prefill or decode server agree on.

Source: SGLang 0.5.23, `event_loop_pp_disagg_prefill`, `event_loop_pp_disagg_decode`,
`_pp_pd_get_retract_ids`, `_pp_pd_get_prealloc_ids` and `_pp_pd_get_decode_transferred_ids` in
managers/scheduler_pp_mixin.py. Each stage has a scheduler, and all must decide the same. So the
first stage writes down what it sees, such as transfers that have ended, and sends it through the
stages, with each pass to the next one. The stages act on it when it has come round:

    pass of the first stage         0    1    2    3    4       (three stages)
    it sees                         s0   s1   s2   s3   s4
    at its end all stages act on              s0   s1   s2

Here all stages see the same at the same time.
"""

from collections import deque
from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

from sim.sglang.scheduler.roles.preallocation_queue import PreallocationQueue
from sim.sglang.scheduler.roles.transfer_queue import TransferQueue

Seen = TypeVar("Seen")


class Agreement(Generic[Seen]):
    """Lists of what the first stage has seen, on their way through the stages.

    Attributes:
        agreed: what the stages act on at the end of the latest pass; None: nothing yet.
    """

    def __init__(self, num_stages: int) -> None:
        self.agreed: Seen | None = None
        self._num_stages = num_stages
        self._under_way: deque[Seen] = deque()
        # Passes in a row that have changed nothing, and the state after them.
        self._num_quiet = 0
        self._state: tuple[int, ...] = ()

    def send(self, seen: Seen) -> None:
        """A pass begins, and this is what the first stage sees."""
        self._under_way.append(seen)
        is_round = len(self._under_way) == self._num_stages
        self.agreed = self._under_way.popleft() if is_round else None

    def note_news(self) -> None:
        """There is something to see for the next pass."""
        self._num_quiet = 0

    def end_pass(self, state: tuple[int, ...], *, is_idle: bool) -> None:
        """A pass has ended; `is_idle`: nothing was launched, and nothing is in flight."""
        self._num_quiet = self._num_quiet + 1 if is_idle and state == self._state else 0
        self._state = state

    @property
    def is_settled(self) -> bool:
        """Whether the passes of an idle server change nothing until there are news.

        What is seen acts one round later. A retracted request is seen in one pass of each round.
        """
        return self._num_quiet >= 2 * self._num_stages


class SeenByStage(NamedTuple):
    """Requests, by rid, that the first stage of a pipeline sees in a pass.

    Attributes:
        retracted: those that may come back from host memory; each is seen in every round once.
        new: those of the preallocation queue.
        lost: those of the preallocation queue whose KV will not come, or that were given up.
        ended: those of the transfer queue whose transfer has ended, in either way.
    """

    retracted: Collection[str]
    new: Collection[str]
    lost: Collection[str]
    ended: Collection[str]


class DecodeStages:
    """What the first stage sees, on its way through the stages.

    Attributes:
        agreement: what all stages know.
    """

    def __init__(self, num_stages: int) -> None:
        self.agreement: Agreement[SeenByStage] = Agreement(num_stages)
        # Of each retracted request, the micro-batch whose turn it was when it was seen first.
        self._turn_of: dict[str, int] = {}

    def look(self, turn: int, preallocation: PreallocationQueue, transfers: TransferQueue) -> None:
        """The pass of the micro-batch `turn` begins."""
        retracted = [request.rid for request in preallocation.retracted]
        self._turn_of = {rid: self._turn_of.get(rid, turn) for rid in retracted}
        new = [request.rid for request in preallocation.requests]
        ended = transfers.lost | transfers.received
        self.agreement.send(
            SeenByStage(
                retracted=[rid for rid in retracted if self._turn_of[rid] == turn],
                new=[rid for rid in new if rid not in transfers.lost],
                lost=[rid for rid in new if rid in transfers.lost],
                ended=[request.rid for request in transfers.requests if request.rid in ended],
            )
        )
