"""What a scheduler does with `SimpleCPUOffloadConnector` to keep KV in CPU memory, too.

CPU memory is a second block pool (`sim.vllm.offload.host_blocks`). A waiting request without blocks
is looked up on the GPU, then there; what is found stays there until the request is looked up again,
is loaded, or ends. Blocks on the GPU that are copied, in either direction, have a user more until
the scheduler knows that the copy has ended. So no step waits for copies, unless it preempts.

Each decision stores, in one copy, what its requests have computed in the steps before. A request
that ends leaves its last blocks to the next decision.

vLLM 0.33.0: `SimpleCPUOffloadScheduler` (v1/simple_kv_offload/manager.py).
"""

from collections.abc import Sequence
from typing import cast

from sim.engine.rows import RowLaunch
from sim.engine.server_config import Partner
from sim.vllm.cache.kv_cache_coordinator import FULL_ATTENTION, KVCacheCoordinator
from sim.vllm.cache.single_type_manager import CHUNKED, MAMBA, CacheRules
from sim.vllm.config import VllmConfig
from sim.vllm.offload.copies import CopyJob
from sim.vllm.offload.copying import CopyingConnector
from sim.vllm.offload.host_blocks import HostBlocks, runs_of_different
from sim.vllm.offload.lazy import FreeBlockScan, blocks_of_a_step
from sim.vllm.offload.settings import OffloadSettings
from sim.vllm.request import NULL, RequestBlocks, VllmDecision, VllmRequest, block_ids
from sim.vllm.scheduler.connector import Connector


class _Offers:
    """What of a request has been offered to CPU memory.

    Attributes:
        blocks: for each group of layers, its blocks as steps have told of them: also those that a
            window has left since.
        next_places: for each group, the blocks before this place have been offered.
    """

    def __init__(self, num_groups: int) -> None:
        self._num_groups = num_groups
        self.start()

    def start(self) -> None:
        """It has no blocks."""
        self.blocks: list[list[int]] = [[] for _ in range(self._num_groups)]
        self.next_places = [0] * self._num_groups


class SimpleConnector(CopyingConnector):
    """Of a server with `SimpleCPUOffloadConnector`."""

    def __init__(
        self,
        config: VllmConfig,
        memory: KVCacheCoordinator,
        settings: OffloadSettings,
        rules: CacheRules,
        role: Connector,
    ) -> None:
        """`rules`: those of the blocks on the GPU; `role`: what the server does besides."""
        super().__init__(config, memory, role)
        groups = config.kv_cache_groups or FULL_ATTENTION
        self.host = HostBlocks(settings.num_chunks, config.block_size, groups, rules)
        # vLLM keeps nothing in CPU memory without prefix caching.
        self._is_on = config.enable_prefix_caching
        self._is_async = config.async_scheduling
        self._block_size = config.block_size
        self._lookahead = rules.hash_lookahead
        self._chunk_sizes = [spec.size for spec in groups if spec.kind == CHUNKED]
        # States do not stay where they are: the KV memory hands them over.
        self._scanned = [place for place, spec in enumerate(groups) if spec.kind != MAMBA]
        self._num_groups = len(groups)
        self._offers: dict[RequestBlocks, _Offers] = {}
        # Blocks here of requests that have been found, and have no blocks on the GPU yet.
        self._found: dict[RequestBlocks, list[int]] = {}
        # Copies that have not ended, as far as the scheduler knows, and their blocks here.
        self._jobs: dict[CopyJob, list[int]] = {}
        self._being_stored: set[int] = set()
        # The last blocks of requests that have ended since the last decision, and theirs here.
        self._left: list[tuple[list[int], list[int]]] = []
        # Admissions before the decision at hand.
        self._num_admissions = 0
        # With `lazy_offload`.
        self._scan: FreeBlockScan | None = None
        memory.count_host_tokens = self.num_host_tokens
        if settings.lazy_offload and self._is_on:
            num_blocks = blocks_of_a_step(groups, config.max_num_batched_tokens, self._block_size)
            self._scan = FreeBlockScan(memory.pool, self.host, num_blocks)
        elif self._is_on:
            memory.hand_over_states()

    def num_host_tokens(self) -> int:
        """Tokens in CPU memory, those that are being written included."""
        writing = [here for job, here in self._jobs.items() if job.is_store]
        writing += [here for _, here in self._left]
        num_blocks = self.host.num_findable + sum([len(here) for here in writing])
        return num_blocks * self._block_size

    @property
    def has_jobs(self) -> bool:
        return bool(self._jobs)

    @property
    def has_ended(self) -> bool:
        return bool(self._left) or (self._scan is not None and self._scan.has_freed)

    @property
    def has_more(self) -> bool:
        return self._scan is not None and self._scan.has_moved

    def begin_decision(self, now_ns: int, *, has_requests: bool) -> None:
        if self._scan is not None:
            self._scan.begin_decision(has_requests=has_requests)

    @property
    def waits(self) -> bool:
        return self.has_jobs or self._role.waits or self._kv_loads.may_wait_for_ever

    def copied_blocks(self) -> list[int]:
        stored = [block for job in self._jobs if job.is_store for block in job.blocks]
        return stored + [block for blocks, _ in self._left for block in blocks]

    # ---- loads ---------------------------------------------------------------------------------

    def num_loadable(self, request: VllmRequest, num_found: int) -> int | None:
        self._let_found_go(request)
        # What is behind the tokens found is looked up as if it were a prompt of its own.
        in_chunk = any(num_found % size for size in self._chunk_sizes)
        if not self._is_on or in_chunk:
            return 0
        num_more, blocks = self.host.find(request.kv, num_found, request.num_tokens)
        if num_more:
            self.host.pin(blocks)
            self._found[request.kv] = blocks
        return num_more

    def _let_found_go(self, request: VllmRequest) -> None:
        found = self._found.pop(request.kv, None)
        if found is not None:
            self.host.release(found)

    def load(self, request: VllmRequest, num_found: int, num_wanted: int) -> None:
        self._begins_to_load(request)
        if self._scan is None:
            self._offers_of(request)
        request.loaded_len = num_wanted - num_found
        blocks = self._found.pop(request.kv)
        job = CopyJob(request, (), blocks, is_store=False)
        self._jobs[job] = blocks
        self._copied.loads.append(job)

    # ---- stores --------------------------------------------------------------------------------

    def _offers_of(self, request: VllmRequest) -> _Offers:
        offers = self._offers.get(request.kv)
        if offers is None:
            offers = self._offers[request.kv] = _Offers(self._num_groups)
        return offers

    def ended(self, request: VllmRequest, *, is_aborted: bool) -> None:
        """A request ends: what it has computed last is copied with the next decision."""
        self._let_found_go(request)
        if self._scan is not None:
            self._scan.has_freed = True
        offers, kv = self._offers.pop(request.kv, None), request.kv
        if offers is None or not kv.tables:
            return
        num_processed = max(request.seq_len - request.num_in_flight, 0)
        self._memory.remove_skipped_blocks(kv, num_processed)
        num_blocks = -(-request.seq_len // self._block_size)
        offers.blocks = [table.blocks_from(0)[:num_blocks] for table in kv.tables]
        blocks = self._choose(request, offers, request.seq_len - request.num_placeholders)
        if blocks:
            self._left.append((blocks, self._take(blocks)))

    def decided(self, decision: VllmDecision, partner: Partner) -> None:
        launch = decision.launch
        self._tell_others(decision, partner)
        if not self._is_on:
            return
        victims = [victim for _, victims in decision.preempted for victim in victims]
        if victims:
            self._copied.awaited = set(self._jobs).difference(self._copied.loads)
        if self._scan is not None:
            on_gpu = self._scan.next_blocks(has_jobs=self.has_jobs)
            here = self._take(on_gpu)
        else:
            for request in () if launch is None else launch.prefill:
                self._offers_of(request)
            on_gpu, here = self._store_states(victims)
            for victim in victims:
                self._offers_of(victim).start()
            if launch is not None:
                self._offer_all(cast("RowLaunch[VllmRequest]", launch), on_gpu, here)
        for blocks, theirs in self._left:
            on_gpu += blocks
            here += theirs
        self._left = []
        if on_gpu:
            job = CopyJob(None, (), on_gpu, is_store=True)
            self._jobs[job] = here
            self._copied.stores.append(job)

    def _offer_all(
        self, launch: RowLaunch[VllmRequest], on_gpu: list[int], here: list[int]
    ) -> None:
        """Add to the blocks that are copied what the requests of a step have computed before."""
        num_confirmed = self._num_confirmed(launch)
        for request in sorted([*launch.prefill, *launch.decode], key=self._place):
            blocks = self._offer(request, num_confirmed[request])
            on_gpu += blocks
            here += self._take(blocks)
        admissions = [request.admission for request in launch.prefill]
        self._num_admissions = max([self._num_admissions, *admissions])

    def _place(self, request: VllmRequest) -> tuple[int, int]:
        """When it is its turn: those that were admitted now go first, new ones before others."""
        turn = 2
        if request.admission > self._num_admissions:
            turn = int(request.preemptions > 0)
        return turn, request.admission

    def _num_confirmed(self, launch: RowLaunch[VllmRequest]) -> dict[VllmRequest, int]:
        """Tokens of each request that the steps before have computed, or are computing.

        Under async scheduling, the latest that are not known yet do not count.
        """
        num_confirmed: dict[VllmRequest, int] = {}
        for place, request in enumerate(launch.prefill):
            num_sampled = 0 if request.is_prefilling else 1 + launch.padding[place]
            num_new = launch.lengths[place] - num_sampled * self._is_async
            num_confirmed[request] = request.seq_len - request.num_placeholders - num_new
        for place, request in enumerate(launch.decode):
            num_new = 0 if self._is_async else 1 + launch.drafts[place]
            num_confirmed[request] = request.seq_len - request.num_placeholders - num_new
        return num_confirmed

    def _store_states(self, victims: Sequence[VllmRequest]) -> tuple[list[int], list[int]]:
        """Copy the states that this decision lets others find; returns the blocks, and here."""
        on_gpu: list[int] = []
        here: list[int] = []
        lost = {victim.kv for victim in victims}
        for kv, states in self._memory.take_states().items():
            if kv not in self._offers or kv in lost:
                continue
            for _, block, _ in states:
                if self._is_worth(block) and self.host.num_free:
                    on_gpu.append(block)
                    here += self._take([block])
        return on_gpu, here

    def _offer(self, request: VllmRequest, num_confirmed: int) -> list[int]:
        """What is to be copied of a request that a step computes."""
        offers = self._offers_of(request)
        for known, table in zip(offers.blocks, request.kv.tables, strict=True):
            known.extend(table.blocks_from(len(known)))
        return self._choose(request, offers, num_confirmed)

    def _choose(self, request: VllmRequest, offers: _Offers, num_confirmed: int) -> list[int]:
        """The next blocks of a request that CPU memory lacks, as many as it has room for."""
        chosen: list[int] = []
        most = self.host.num_free
        num_known = request.num_tokens - self._lookahead
        for number in self._scanned:
            if len(chosen) >= most:
                break
            blocks = offers.blocks[number]
            end = min(len(blocks), num_confirmed // self._block_size)
            for place in range(offers.next_places[number], end):
                block = blocks[place]
                if block == NULL and (place + 1) * self._block_size <= num_known:
                    # A window has left it, but it may still be found.
                    block = self._memory.managers[number].find_block(request.kv, place)
                if block != NULL and self._is_worth(block):
                    if len(chosen) >= most:
                        break
                    chosen.append(block)
                offers.next_places[number] = place + 1
        return chosen

    def _is_worth(self, block: int) -> bool:
        """Whether a block on the GPU can be found, and neither it nor its like is, or comes, here.

        Equal blocks that are being copied do not count: only when one of them has been.
        """
        block_hash = self._memory.pool.hash_at(block)
        return block_hash != 0 and block not in self._being_stored and not self.host.has(block_hash)

    def _take(self, blocks: Sequence[int]) -> list[int]:
        """These blocks on the GPU are to be copied: returns the blocks here.

        A block may be among them twice: one that a window has left, and another group has got.
        """
        self._being_stored.update(blocks)
        for run in runs_of_different(blocks):
            self._memory.pool.touch(block_ids(run))
        return self.host.take(len(blocks))

    # ---- copies --------------------------------------------------------------------------------

    def copy_ended(self, job: CopyJob) -> bool:
        here, pool = self._jobs.pop(job), self._memory.pool
        if not job.is_store:
            self.host.release(here)
            return True
        blocks = list(job.blocks)
        self._being_stored.difference_update(blocks)
        self.host.written(here, pool.hash_of[blocks])
        self.host.release(here)
        for run in runs_of_different(blocks):
            pool.free_blocks(run, uncached_first=True)
        return False
