"""What a scheduler does to keep KV in CPU memory, too: what it loads, and what it stores.

A request that waits and has no blocks is looked up on the GPU first. Whole chunks behind what is
found there are looked up in CPU memory. If there are some, the request gets blocks for them and
waits for their copies; then it is admitted like any other one (`sim.vllm.scheduler.waiting_pass`).

Each decision ends with offers: chunks that its step fills are stored in CPU memory. The blocks of a
running request are safe meanwhile. Those of one that has ended may be allocated again: then the
step waits for their copies. So does a step that preempts a request with such copies.

vLLM 0.33.0: `OffloadingConnectorScheduler` (distributed/kv_transfer/kv_connector/v1/offloading/
scheduler.py).
"""

from collections.abc import Iterable

from sim.engine.server_config import Partner
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.offload.copies import Job
from sim.vllm.offload.host_memory import HostMemory
from sim.vllm.offload.policies import Access, ChunkKey
from sim.vllm.offload.settings import OffloadSettings
from sim.vllm.request import RequestBlocks, VllmDecision, VllmRequest
from sim.vllm.scheduler.connector import BlockFences, Connector, KvLoads
from sim.vllm.scheduler.step_limits import EAGLE_METHODS


class Offloaded:
    """What is known of a request that was looked up in CPU memory.

    Attributes:
        request: the request.
        access: what it has had to do with CPU memory.
        blocks: its blocks on the GPU, as far as steps have told of them.
        next_chunk: the chunks before this one have been offered, or loaded.
        jobs: its copies that have not ended: a load, or stores.
        num_tokens: of an ended request: tokens whose KV may be stored. None: it has not ended.
        is_forgotten: it has ended, and its last chunks have been offered.
    """

    def __init__(self, request: VllmRequest) -> None:
        self.request = request
        self.access = Access()
        self.blocks: list[int] = []
        self.next_chunk = 0
        self.jobs: set[Job] = set()
        self.num_tokens: int | None = None
        self.is_forgotten = False


class Copied:
    """Copies that one decision begins, and for which its step waits.

    Attributes:
        loads, stores: copies to the GPU and to CPU memory.
        awaited: copies to CPU memory that must end before the step begins.
    """

    def __init__(self) -> None:
        self.loads: list[Job] = []
        self.stores: list[Job] = []
        self.awaited: set[Job] = set()


class OffloadConnector(Connector):
    """Of a server with KV in CPU memory."""

    def __init__(
        self, config: VllmConfig, memory: KVCacheCoordinator, settings: OffloadSettings
    ) -> None:
        super().__init__()
        self.host = HostMemory(settings)
        self._kv_loads = self.loads = KvLoads(config, memory)
        self.looks_up = self.frees_skipped_first = True
        if config.async_scheduling or config.micro_batches > 1:
            self.fences = BlockFences()
        self._block_size = config.block_size
        self._blocks_per_chunk = settings.blocks_per_chunk
        self._chunk_tokens = settings.blocks_per_chunk * config.block_size
        self._stores_outputs = not settings.offload_prompt_only
        self._shares_loads = config.enable_prefix_caching
        # What an EAGLE drafter has written for the last chunk may change.
        speculation = config.speculation
        self._num_left_out = int(speculation is not None and speculation.method in EAGLE_METHODS)
        self._requests: dict[str, Offloaded] = {}
        # Those that have ended since the last decision, in order.
        self._ended: list[Offloaded] = []
        self._being_loaded: set[ChunkKey] = set()
        # Blocks that this decision has given to requests.
        self._given: set[int] = set()
        # Blocks of ended requests, with their copies that have not ended.
        self._watched: dict[int, set[Job]] = {}
        self._copied = Copied()
        self._num_jobs = 0
        memory.count_host_tokens = self.num_host_tokens

    def num_host_tokens(self) -> int:
        """Tokens in CPU memory, those that are being written included."""
        return len(self.host) * self._chunk_tokens

    @property
    def has_jobs(self) -> bool:
        """Some copies have not ended, as far as the scheduler knows."""
        return self._num_jobs > 0

    @property
    def has_ended(self) -> bool:
        """Requests have ended since the last decision."""
        return bool(self._ended)

    @property
    def waits(self) -> bool:
        return self.has_jobs or self._kv_loads.may_wait_for_ever

    def blocks_of_ended(self) -> list[tuple[RequestBlocks, int]]:
        held = [] if self.fences is None else [each[1:] for each in self.fences.held]
        return [*self._kv_loads.orphans.values(), *held]

    # ---- loads ---------------------------------------------------------------------------------

    def num_loadable(self, request: VllmRequest, num_found: int) -> int | None:
        """How many tokens of a waiting request are in CPU memory behind those found on the GPU.

        None: that is not known yet. Its own copies, or those of a chunk that it needs, have not
        ended.
        """
        state = self._requests.get(request.rid)
        if state is None:
            state = self._requests[request.rid] = Offloaded(request)
        state.blocks = []
        state.next_chunk = 0
        if state.jobs:
            return None
        size = self._chunk_tokens
        num_chunks = request.num_tokens // size
        if num_chunks * size - num_found < size:
            return 0
        end = num_found // size
        found: list[ChunkKey] = []
        is_writing = False
        while end < num_chunks:
            key = self._key(request.kv, end)
            chunk = self.host.find(key)
            if chunk is None:
                break
            is_writing |= not chunk.is_ready
            found.append(key)
            end += 1
        if is_writing:
            return None
        num_left_out = self._num_left_out if found else 0
        num_more = (end - num_left_out) * size - num_found
        if num_more < size:
            return 0
        loaded = found[: len(found) - num_left_out]
        return None if not self._being_loaded.isdisjoint(loaded) else num_more

    def load(self, request: VllmRequest, num_found: int) -> None:
        """A request has got blocks for what is loaded behind the tokens found on the GPU."""
        state, blocks = self._requests[request.rid], request.kv.tables[0].blocks
        self._given.update(blocks)
        request.loaded_len = request.seq_len - num_found
        end = request.seq_len // self._chunk_tokens
        keys = [self._key(request.kv, i) for i in range(num_found // self._chunk_tokens, end)]
        state.next_chunk = end
        self.host.load(keys, state.access)
        if self._shares_loads:
            self._being_loaded.update(keys)
        new = blocks[num_found // self._block_size :]
        job = self._add(state, keys, new, is_store=False)
        self._copied.loads.append(job)

    def _key(self, kv: RequestBlocks, place: int) -> ChunkKey:
        num_blocks = (place + 1) * self._blocks_per_chunk
        kv.hash_blocks(num_blocks, self._block_size)
        return ChunkKey(place, kv.hashes[num_blocks - 1])

    def _add(
        self, state: Offloaded, keys: list[ChunkKey], blocks: list[int], *, is_store: bool
    ) -> Job:
        job = Job(state.request, keys, blocks, is_store=is_store)
        state.jobs.add(job)
        self._num_jobs += 1
        return job

    # ---- stores --------------------------------------------------------------------------------

    def ended(self, request: VllmRequest, *, is_aborted: bool) -> None:
        """A request ends; its blocks are freed next."""
        state = self._requests.get(request.rid)
        if state is None:
            return
        num_tokens = request.seq_len
        if not is_aborted:
            # KV of the last token is never cached.
            num_tokens = max(request.prompt_len, request.num_tokens - 1)
        state.num_tokens = self._num_storable(request, num_tokens)
        num_chunks = self._num_chunks(state, state.num_tokens)
        # Its tokens can be read only now.
        request.kv.hash_blocks(num_chunks * self._blocks_per_chunk, self._block_size)
        for job in state.jobs:
            if job.is_store:
                self._watch(job)
        self._ended.append(state)

    def decided(self, decision: VllmDecision, partner: Partner) -> None:
        launch = decision.launch
        scheduled: list[VllmRequest] = []
        if launch is not None:
            self._kv_loads.launched(launch.prefill)
            if self.fences is not None:
                self.fences.launched(launch)
            scheduled = sorted([*launch.prefill, *launch.decode], key=_admission)
        self._kv_loads.started = []
        for request in scheduled:
            state = self._requests[request.rid]
            new = request.kv.tables[0].blocks[len(state.blocks) :]
            state.blocks += new
            self._given.update(new)
        self._wait_for_copies(victim for _, victims in decision.preempted for victim in victims)
        for request in scheduled:
            num_tokens = self._num_storable(request, request.seq_len)
            self._offer(self._requests[request.rid], num_tokens)
        for state in self._ended:
            self._offer(state, state.num_tokens or 0)
        for state in self._ended:
            self.host.request_ended(state.access)
            state.is_forgotten = True
            self._forget(state)
        self._ended = []
        self._given = set()

    def _wait_for_copies(self, victims: Iterable[VllmRequest]) -> None:
        """The step must not overwrite what is still to be copied."""
        awaited = self._copied.awaited
        for victim in victims:
            awaited.update(self._requests[victim.rid].jobs)
        if self._watched and not self._given.isdisjoint(self._watched):
            for block in self._given:
                awaited.update(self._watched.get(block, ()))

    def _num_storable(self, request: VllmRequest, num_tokens: int) -> int:
        """How many of the first tokens of a request may be stored."""
        most = request.num_tokens if self._stores_outputs else request.prompt_len
        return min(num_tokens, most)

    def _num_chunks(self, state: Offloaded, num_tokens: int) -> int:
        num_chunks = num_tokens // self._chunk_tokens
        if state.num_tokens is None and num_tokens > state.request.prompt_len:
            num_chunks -= self._num_left_out
        return min(num_chunks, len(state.blocks) // self._blocks_per_chunk)

    def _offer(self, state: Offloaded, num_tokens: int) -> None:
        """Store the chunks of a request's first tokens that are not stored yet, if there is room.

        If there is none, they are offered again with the next step.
        """
        first, end = state.next_chunk, self._num_chunks(state, num_tokens)
        if end <= first:
            return
        keys = [self._key(state.request.kv, place) for place in range(first, end)]
        stored = self.host.store(keys, state.access)
        if stored is None:
            return
        state.next_chunk = end
        if not stored:
            return
        per_chunk = self._blocks_per_chunk
        blocks: list[int] = []
        for key in stored:
            blocks += state.blocks[key.place * per_chunk : (key.place + 1) * per_chunk]
        job = self._add(state, stored, blocks, is_store=True)
        self._copied.stores.append(job)
        if state.num_tokens is not None:
            self._watch(job)
            if not self._given.isdisjoint(blocks):
                self._copied.awaited.add(job)

    def _watch(self, job: Job) -> None:
        for block in job.blocks:
            self._watched.setdefault(block, set()).add(job)

    # ---- copies --------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """All copies that have not ended, as far as the scheduler knows."""
        return [job for state in self._requests.values() for job in state.jobs]

    def take_copied(self) -> Copied:
        """What the latest decision copies."""
        copied, self._copied = self._copied, Copied()
        return copied

    def copy_ended(self, job: Job) -> None:
        """The scheduler learns that a copy has ended."""
        state = self._requests[job.request.rid]
        self._num_jobs -= 1
        state.jobs.discard(job)
        if not job.is_store:
            self.host.loaded(job.keys)
            self._being_loaded.difference_update(job.keys)
        else:
            self.host.stored(job.keys)
            if state.num_tokens is not None:
                self._unwatch(job)
        self._forget(state)

    def _unwatch(self, job: Job) -> None:
        for block in job.blocks:
            watching = self._watched.get(block)
            if watching is not None:
                watching.discard(job)
                if not watching:
                    del self._watched[block]

    def _forget(self, state: Offloaded) -> None:
        if state.is_forgotten and not state.jobs:
            del self._requests[state.request.rid]


def _admission(request: VllmRequest) -> int:
    return request.admission
