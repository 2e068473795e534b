"""What a scheduler knows of requests that were looked up in CPU memory, and of their copies."""

from collections.abc import Iterable

from sim.vllm.offload.copies import CopyJob
from sim.vllm.offload.policies import Access
from sim.vllm.request import VllmRequest


class Offloaded:
    """What is known of a request that was looked up in CPU memory.

    Attributes:
        request: the request.
        access: what it has had to do with CPU memory.
        blocks: for each group of layers, its blocks on the GPU, as far as steps have told of them;
            `NULL` where there is none, or where it has been given to another request since.
        next_chunks: for each group, the chunks before this one have been offered, or loaded.
        jobs: its copies that have not ended: a load, or stores.
        num_tokens: of an ended request: tokens whose KV may be stored. None: it has not ended.
        is_forgotten: it has ended, and its last chunks have been offered.
    """

    def __init__(self, request: VllmRequest, num_groups: int, *, stores_outputs: bool) -> None:
        """`stores_outputs`: chunks with output tokens are stored, too."""
        self.request = request
        self._stores_outputs = stores_outputs
        self.access = Access()
        self.jobs: set[CopyJob] = set()
        self.num_tokens: int | None = None
        self.is_forgotten = False
        self.next_chunks = [0] * num_groups
        self.start(num_groups, offers_again=False)

    def start(self, num_groups: int, *, offers_again: bool) -> None:
        """It has no blocks; `offers_again`: all of its chunks are offered anew."""
        self.blocks: list[list[int]] = [[] for _ in range(num_groups)]
        if offers_again:
            self.next_chunks = [0] * num_groups

    def num_storable(self, num_tokens: int) -> int:
        """How many of its first `num_tokens` tokens may be stored."""
        request = self.request
        return min(num_tokens, request.num_tokens if self._stores_outputs else request.prompt_len)

    @property
    def is_heard_of(self) -> bool:
        """Before version 0.33.0: it loads, or has ended, and some of its copies have not."""
        return any(not job.is_store or self.num_tokens is not None for job in self.jobs)


class Copied:
    """Copies that one decision begins, and for which its step waits.

    Attributes:
        loads, stores: copies to the GPU and to CPU memory.
        awaited: copies to CPU memory that must end before the step begins.
        over: requests that have ended since the decision before.
    """

    def __init__(self) -> None:
        self.loads: list[CopyJob] = []
        self.stores: list[CopyJob] = []
        self.awaited: set[CopyJob] = set()
        self.over: list[VllmRequest] = []


class Watch:
    """Blocks that may be allocated again while they are copied; a step then waits for the copy."""

    def __init__(self) -> None:
        self._jobs: dict[int, set[CopyJob]] = {}

    def add(self, job: CopyJob, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._jobs.setdefault(block, set()).add(job)

    def remove(self, job: CopyJob) -> None:
        """A copy has ended."""
        for block in job.blocks:
            watching = self._jobs.get(block)
            if watching is not None:
                watching.discard(job)
                if not watching:
                    del self._jobs[block]

    def jobs_of(self, blocks: set[int]) -> Iterable[CopyJob]:
        """The copies of blocks that were allocated."""
        if self._jobs and not blocks.isdisjoint(self._jobs):
            for block in blocks:
                yield from self._jobs.get(block, ())
