"""What a decode step gives a row: one token, and a place for its KV.

With speculative decoding `sim.sglang.scheduler.drafts` takes the place of this.
"""

from sim.core.batch import ForwardMode
from sim.engine.records import Launch
from sim.engine.running_batch import RunningBatch
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.request import SglangBatch, SglangLaunch, SglangRequest


class RowSteps:
    """Decode steps whose rows get one token each; base class of other steps.

    Attributes:
        in_lockstep: all rows get the same number of tokens, so that equal steps can be passed in
            one go.
    """

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv
        self.in_lockstep = True

    def new_batch(self) -> SglangBatch:
        return RunningBatch(self._kv.page_size)

    def num_new_pages(self, running: SglangBatch) -> int:
        """New pages that the next decode step of all rows needs."""
        return running.num_new_pages

    def num_new_pages_of(self, rows: list[SglangRequest]) -> int:
        """New pages that a decode step of these rows needs."""
        return sum([request.seq_len % self._kv.page_size == 0 for request in rows])

    def begin(self, running: SglangBatch) -> None:
        """Allocate the KV of a decode step of all rows."""
        self._kv.decode(len(running.requests), running.num_new_pages)
        running.begin_steps()

    def launch(
        self,
        mode: ForwardMode,
        prefill: list[SglangRequest],
        decode: list[SglangRequest],
        chunked: tuple[SglangRequest, ...] = (),
    ) -> SglangLaunch:
        return Launch(mode, prefill, decode, chunked)

    def prompt_computed(self, request: SglangRequest) -> None:
        """The tokens that a prefill step computed are in the prefix cache."""

    def verified(self, request: SglangRequest, num_drafts: int, num_sampled: int) -> None:
        """A row that verified `num_drafts` tokens has sampled `num_sampled`."""

    def give_up(self, request: SglangRequest) -> None:
        """A request's client has given up, or it has waited or run for too long."""

    def num_cacheable(self, request: SglangRequest) -> int:
        """Tokens with KV that go into the prefix cache when a request ends.

        The last token has KV only under overlap: a step was decided before that token was known to
        be the last.
        """
        return min(request.seq_len, request.num_tokens)
