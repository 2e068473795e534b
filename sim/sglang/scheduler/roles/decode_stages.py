"""What the stages of a decode server agree on.

Source: SGLang 0.5.23, `_pp_pd_get_retract_ids`, `_pp_pd_get_prealloc_ids` and
`_pp_pd_get_decode_transferred_ids` in managers/scheduler_pp_mixin.py.
"""

from collections.abc import Collection
from typing import NamedTuple

from sim.sglang.scheduler.roles.agreement import Agreement
from sim.sglang.scheduler.roles.preallocation_queue import PreallocationQueue
from sim.sglang.scheduler.roles.transfer_queue import TransferQueue


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
