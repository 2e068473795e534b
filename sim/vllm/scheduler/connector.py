"""What a server does for requests that it shares with a server of another role.

Base class: a server that computes whole requests shares none. `prefill_connector.py` and
`decode_connector.py` have the others. A role knows nothing of how rows decode.
"""

from collections.abc import Iterable

from sim.engine.partner import Partner
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.request import VllmLaunch, VllmRequest
from sim.vllm.scheduler.block_fences import BlockFences
from sim.vllm.scheduler.loads import Loads


class Connector:
    """The role of a server that computes whole requests.

    Attributes:
        most_output_tokens: output tokens of a request on this server; None: as it asks for.
        decodes: requests decode here when their prompts are computed.
        keeps_token: a request that is preempted gets its token in flight (rule 13).
        frees_skipped_first: at the end of a request, blocks that its windows have left are freed
            before the others (`_connector_finished` of vLLM's scheduler).
        loads: KV that comes from elsewhere; None: none does.
        fences: blocks that steps in flight may write into; None: they need no protection.
    """

    def __init__(self) -> None:
        self.most_output_tokens: int | None = None
        self.decodes = self.keeps_token = True
        self.frees_skipped_first = False
        self.loads: Loads | None = None
        self.fences: BlockFences | None = None

    def arrived(self, request: VllmRequest) -> None:
        """A request is new on this server."""

    def hold(self, request: VllmRequest) -> None:
        """The first token of a request is known, and its blocks stay until they are fetched."""
        raise NotImplementedError

    def let_go(self, request: VllmRequest) -> None:
        """The blocks of a request that was held have been fetched, or nobody wants them."""
        raise NotImplementedError

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        """Until when blocks are kept that were computed, and lost on their way."""
        raise NotImplementedError

    def requests(self) -> Iterable[VllmRequest]:
        """Requests whose answers are complete and whose blocks are not."""
        return ()

    def decides(self, *, has_in_flight: bool) -> None:
        """A decision begins."""

    def decided(self, launch: VllmLaunch | None, partner: Partner) -> None:
        """A decision has been taken."""

    @property
    def waits(self) -> bool:
        """Something will happen of itself, so that a server that launches nothing is no error."""
        return False

    def blocks_of_ended(self) -> list[tuple[RequestBlocks, int]]:
        """Blocks of requests that have ended, which are not freed yet, and the tokens in them."""
        return []
