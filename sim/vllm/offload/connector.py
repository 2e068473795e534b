"""What a scheduler does to keep KV in CPU memory, too: what it loads, and what it stores.

A request that waits and has no blocks is looked up on the GPU first. Whole chunks behind what is
found there are looked up in CPU memory. If there are some, the request gets blocks for them and
waits for their copies; then it is admitted like any other one (`sim.vllm.scheduler.waiting_pass`).

Each decision ends with offers: chunks that its step fills are stored in CPU memory. The blocks of a
running request are safe meanwhile. Those of one that has ended may be allocated again: then the
step waits for their copies. So does a step that preempts a request with such copies.

Before version 0.33.0 a request that has ended keeps its blocks until all of its copies have ended.
Others find its chunks then, or when it is preempted.

vLLM 0.33.0 and 0.19.0: `OffloadingConnectorScheduler` (distributed/kv_transfer/kv_connector/v1/
offloading/scheduler.py).
"""

from collections.abc import Iterable

from sim.engine.server_config import Partner
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.offload.copies import CopyJob
from sim.vllm.offload.copying import CopyingConnector
from sim.vllm.offload.given import GivenBlocks
from sim.vllm.offload.host_memory import HostMemory
from sim.vllm.offload.offloaded import Offloaded, Watch
from sim.vllm.offload.policies import ChunkKey
from sim.vllm.offload.search import ChunkSearch, OffloadGroup, offload_groups, worth_storing
from sim.vllm.offload.settings import OffloadSettings
from sim.vllm.offload.tiers import Tiers
from sim.vllm.request import NULL, RequestBlocks, VllmDecision, VllmRequest
from sim.vllm.scheduler.connector import Connector


class OffloadConnector(CopyingConnector):
    """Of a server with `OffloadingConnector`."""

    def __init__(
        self,
        config: VllmConfig,
        memory: KVCacheCoordinator,
        settings: OffloadSettings,
        role: Connector,
        below: Tiers | None = None,
    ) -> None:
        """`role`: what the server does besides, by its role; `below`: the tiers below it."""
        super().__init__(config, memory, role, below)
        rules = self._rules = config.rules
        self.host = HostMemory(settings, below, rules)
        self._block_size = config.block_size
        self._blocks_per_chunk = settings.blocks_per_chunk
        self._chunk_tokens = settings.blocks_per_chunk * config.block_size
        self._stores_outputs = not settings.offload_prompt_only
        self._shares_loads = config.enable_prefix_caching
        specs = [manager.spec for manager in memory.managers]
        self._groups = offload_groups(config, specs, self._chunk_tokens)
        # States are stored when the KV memory hands them over.
        self._stored = [group for group in self._groups if not group.has_states]
        self._search = ChunkSearch(
            self.host, self._groups, self._block_size, settings.blocks_per_chunk
        )
        self._requests: dict[RequestBlocks, Offloaded] = {}
        # Those that have ended since the last decision, in order.
        self._ended: list[Offloaded] = []
        self._being_loaded: set[ChunkKey] = set()
        self._given = GivenBlocks(self._stored, settings.blocks_per_chunk)
        # Admissions before the decision at hand.
        self._num_admissions = 0
        self._watch = Watch()
        self._num_jobs = 0
        # Tokens for whose loads this decision's step may still wait; requests for whose it does.
        self._sync_tokens = self._sync_tokens_left = settings.sync_load_tokens
        self._waited_for: set[VllmRequest] = set()
        memory.count_host_tokens = self.num_host_tokens
        memory.listen_to_host = lambda listener: self.host.listen(
            listener, config.block_size, settings.blocks_per_chunk
        )
        memory.tell_reserved = self._given.blocks.update
        memory.hand_over_states()

    def begin_decision(self, now_ns: int, *, has_requests: bool) -> None:
        self.host.begin_decision(now_ns)

    def num_host_tokens(self) -> int:
        """Tokens in CPU memory, those that are being written included."""
        return len(self.host) * self._chunk_tokens

    @property
    def has_jobs(self) -> bool:
        """The scheduler will hear of the end of some copies."""
        if self._rules.ends_stores_by_copy:
            return self._num_jobs > 0 or self.host.has_jobs
        return any(state.is_heard_of for state in self._requests.values())

    @property
    def has_ended(self) -> bool:
        """Requests have ended since the last decision."""
        return bool(self._ended)

    @property
    def waits(self) -> bool:
        waits = self.has_jobs or self.host.awaits_tiers or self._role.waits
        return waits or self._kv_loads.may_wait_for_ever

    def decides(self, *, has_in_flight: bool) -> None:
        super().decides(has_in_flight=has_in_flight)
        if self.has_jobs or self.host.awaits_tiers:
            self._kv_loads.is_last_chance = False

    def repeats(self, rows: Iterable[VllmRequest]) -> bool:
        """Also whether no copy is under way, and no row has chunks to be offered."""
        if self.waits or self._ended or self.host.below is not None or not super().repeats(rows):
            return False
        return not any(self._has_more(self._requests[row.kv], row.seq_len) for row in rows)

    # ---- loads ---------------------------------------------------------------------------------

    def num_loadable(self, request: VllmRequest, num_found: int) -> int | None:
        """How many tokens of a waiting request are in CPU memory behind those found on the GPU.

        None: that is not known yet. Its own copies, or those of a chunk that it needs, have not
        ended.
        """
        state = self._requests.get(request.kv)
        if state is None:
            state = Offloaded(request, len(self._groups), stores_outputs=self._stores_outputs)
            self._requests[request.kv] = state
        state.start(len(self._groups), offers_again=self._rules.offers_by_admission)
        if state.jobs and self._rules.waits_for_stores:
            return None
        return self._search.num_loadable(
            request.kv, request.num_tokens, num_found, self._being_loaded, state.access
        )

    def step_waits_for(self, request: VllmRequest, num_found: int, num_wanted: int) -> bool:
        self._waited_for.discard(request)
        num_more = num_wanted - num_found
        # A request without a token to compute is in no step.
        if num_more > self._sync_tokens_left or num_wanted >= request.num_tokens:
            return False
        self._sync_tokens_left -= num_more
        self._waited_for.add(request)
        return True

    def load(self, request: VllmRequest, num_found: int, num_wanted: int) -> None:
        state, num_tokens = self._requests[request.kv], num_wanted
        self._begins_to_load(request)
        request.loaded_len = num_tokens - num_found
        self._given.blocks.update(*(table.blocks_from(0) for table in request.kv.tables))
        keys, new = self._search.parts_to_load(request.kv, num_found, num_tokens)
        state.next_chunks = [-(-num_tokens // self._chunk_tokens)] * len(self._groups)
        self.host.load(keys, state.access)
        job = self._add(state, keys, new, is_store=False)
        job.is_sync = request in self._waited_for
        if self._shares_loads and not job.is_sync:
            self._being_loaded.update(keys)
        self._copied.loads.append(job)

    def _add(
        self, state: Offloaded, keys: list[ChunkKey], blocks: list[int], *, is_store: bool
    ) -> CopyJob:
        job = CopyJob(state.request, keys, blocks, is_store=is_store)
        state.jobs.add(job)
        self._num_jobs += 1
        return job

    # ---- stores --------------------------------------------------------------------------------

    def ended(self, request: VllmRequest, *, is_aborted: bool) -> None:
        """A request ends; its blocks are freed next."""
        state = self._requests.get(request.kv)
        if state is None or state.num_tokens is not None:
            return
        num_tokens = request.seq_len
        if not is_aborted:
            # KV of the last token is never cached.
            num_tokens = max(request.prompt_len, request.num_tokens - 1)
        state.num_tokens = state.num_storable(num_tokens)
        # Its tokens can be read only now.
        for group in self._stored:
            num_chunks = self._num_chunks(state, group, state.num_tokens)
            request.kv.hash_blocks(num_chunks * self._blocks_per_chunk, self._block_size)
            self.host.tokens_end(request.kv, num_chunks)
        for job in state.jobs if self._rules.ends_stores_by_copy else ():
            self._watch.add(job, job.held)
        self._ended.append(state)

    def is_copied(self, request: VllmRequest) -> bool:
        state = self._requests.get(request.kv)
        return not self._rules.ends_stores_by_copy and state is not None and bool(state.jobs)

    def unheard(self) -> list[str]:
        return [] if self._rules.ends_stores_by_copy else list(self._kv_loads.orphans)

    def decided(self, decision: VllmDecision, partner: Partner) -> None:
        launch = decision.launch
        scheduled: list[VllmRequest] = []
        if launch is not None:
            scheduled = sorted([*launch.prefill, *launch.decode], key=self._place)
        for request, _ in self._kv_loads.started:
            self._given.blocks.update(*(table.blocks_from(0) for table in request.kv.tables))
        self._tell_others(decision, partner)
        states = [self._requests[request.kv] for request in scheduled]
        self._given.note(states, self._requests.values())
        victims = [victim for _, victims in decision.preempted for victim in victims]
        self._wait_for_copies(victims)
        self._store_states()
        for state in states:
            self._offer(state, state.request.seq_len)
        if self._rules.ends_stores_by_copy:
            for state in self._ended:
                self._offer(state, state.num_tokens or 0)
        else:
            self._end_stores(victims)
        for state in self._ended:
            self.host.request_ended(state.access)
            state.is_forgotten = True
            self._copied.over.append(state.request)
            self._forget(state)
        self._ended = []
        self._given.blocks.clear()
        admissions = [request.admission for request in scheduled]
        self._num_admissions = max([self._num_admissions, *admissions])
        self._sync_tokens_left = self._sync_tokens
        self._waited_for = set()

    def _place(self, request: VllmRequest) -> tuple[int, int]:
        """When it is its turn to offer chunks."""
        if self._rules.offers_by_admission:
            return 0, request.admission
        is_new = request.admission > self._num_admissions
        return (2 if request.preemptions else 0) if is_new else 1, request.admission

    def _end_stores(self, victims: Iterable[VllmRequest]) -> None:
        """The step waits for the copies of those that it preempts: others may find their chunks."""
        for victim in victims:
            for job in sorted(self._requests[victim.kv].jobs, key=lambda each: list(each.keys)):
                self._stored_now(job)
                job.keys = ()

    def _wait_for_copies(self, victims: Iterable[VllmRequest]) -> None:
        """The step must not overwrite what is still to be copied."""
        for victim in victims:
            self._copied.awaited.update(self._requests[victim.kv].jobs)
        self._copied.awaited.update(self._watch.jobs_of(self._given.blocks))

    def _num_chunks(self, state: Offloaded, group: OffloadGroup, num_tokens: int) -> int:
        num_chunks = num_tokens // self._chunk_tokens
        if state.num_tokens is None and num_tokens > state.request.prompt_len:
            num_chunks -= group.has_drafter
        return min(num_chunks, len(state.blocks[group.number]) // self._blocks_per_chunk)

    def _store_states(self) -> None:
        """Offer the states that this decision keeps, each for itself."""
        for kv, states in self._memory.take_states().items():
            state = self._requests.get(kv)
            if state is None:
                continue
            most = state.num_storable(state.request.num_tokens)
            for number, block, place in states:
                num_tokens = (place + 1) * self._block_size
                if num_tokens > most or num_tokens % self._chunk_tokens:
                    continue
                key = self._search.key(kv, num_tokens // self._chunk_tokens - 1, number)
                if self.host.store([key], state.access):
                    self._store(state, [key], [block], [])

    def _has_more(self, state: Offloaded, num_tokens: int) -> bool:
        """Whether a request's first tokens have chunks that were not offered yet."""
        most = state.num_storable(num_tokens) // self._chunk_tokens
        return any(most > state.next_chunks[group.number] for group in self._stored)

    def _offer(self, state: Offloaded, num_tokens: int) -> None:
        """Store the chunks of a request's first tokens that are not stored yet, if there is room.

        If there is none, they are offered again with the next step.
        """
        if not self._has_more(state, num_tokens):
            return
        most = state.num_storable(num_tokens)
        ends = [self._num_chunks(state, group, most) for group in self._stored]
        keys = [
            self._search.key(state.request.kv, place, group.number)
            for group, end in zip(self._stored, ends, strict=True)
            for place in worth_storing(
                state, group, end, self._memory.managers[group.number], self._blocks_per_chunk
            )
        ]
        stored = self.host.store(keys, state.access) if keys else []
        if stored is None:
            return
        for group, end in zip(self._stored, ends, strict=True):
            state.next_chunks[group.number] = max(state.next_chunks[group.number], end)
        if stored:
            self._store_chunks(state, stored)
            if self.host.notes_uses:
                self.host.use(self._search.keys(state.request.kv, ends[0]))

    def _store_chunks(self, state: Offloaded, stored: list[ChunkKey]) -> None:
        per_chunk = self._blocks_per_chunk
        held: list[int] = []
        loose: list[int] = []
        for key in stored:
            chunk = state.blocks[key.group][key.place * per_chunk : (key.place + 1) * per_chunk]
            blocks = loose if self._groups[key.group].is_sparse else held
            blocks += [block for block in chunk if block != NULL]
        job = self._store(state, stored, loose, held)
        if state.num_tokens is not None:
            self._watch.add(job, held)
            if not self._given.blocks.isdisjoint(held):
                self._copied.awaited.add(job)

    def _store(
        self, state: Offloaded, keys: list[ChunkKey], loose: list[int], held: list[int]
    ) -> CopyJob:
        """Copy chunks to CPU memory: blocks that may be freed at any time, and others."""
        job = self._add(state, keys, loose + held, is_store=True)
        job.held = held
        self._copied.stores.append(job)
        self._watch.add(job, loose)
        return job

    # ---- copies --------------------------------------------------------------------------------

    def jobs(self) -> list[CopyJob]:
        """All copies that have not ended, as far as the scheduler knows."""
        return [job for state in self._requests.values() for job in state.jobs]

    def copy_ended(self, job: CopyJob) -> bool:
        """The scheduler learns that a copy has ended; whether its request waits for that.

        It waits for a load, and, if its blocks were kept when it ended, for its last copy.
        """
        state = self._requests[job.request.kv]
        self._num_jobs -= 1
        state.jobs.discard(job)
        if not job.is_store:
            self.host.loaded(job.keys)
            self._being_loaded.difference_update(job.keys)
        else:
            self._stored_now(job)
            self._watch.remove(job)
        self._forget(state)
        if state.is_forgotten and not self._rules.ends_stores_by_copy:
            return not state.jobs
        return not (job.is_store or job.is_sync)

    def _stored_now(self, job: CopyJob) -> None:
        if not job.keys:
            return
        if self.host.events is not None:
            self.host.events.stored(job.request.kv, job.keys)
        self.host.stored(job.keys, self._requests[job.request.kv].access)

    def _forget(self, state: Offloaded) -> None:
        if state.is_forgotten and not state.jobs:
            del self._requests[state.request.kv]
            self.host.copies_end(state.request.kv)
