"""What a server does for requests that it shares with a server of another role.

A server that computes whole requests shares none (`Connector`). A request of a prefill server ends
with its first token; its blocks stay until they have been fetched (`PrefillConnector`). A decode
server fetches blocks for a whole prompt first, then its KV (`KvLoads`), and keeps blocks that a
step in flight may still write into (`BlockFences`); `DecodeConnector` has both. A server that loads
KV from its own CPU memory has them, too (`sim.vllm.offload.connector`). A role knows nothing of how
rows decode.

vLLM 0.33.0: `Scheduler.schedule`, second loop, `_update_waiting_for_remote_kv`,
`_handle_failed_recving`, `_inflight_prefill_reserved_blocks`, `_free_request`, `finish_requests`,
`_update_from_kv_xfer_finished` (v1/core/sched/scheduler.py); `get_num_new_matched_tokens`,
`request_finished` (distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py).
"""

from collections import deque
from collections.abc import Iterable, Sequence

from sim.core.units import NS_PER_S
from sim.engine.server_config import Partner
from sim.engine.store import Store
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.request import (
    CacheHit,
    Chunk,
    RequestBlocks,
    VllmDecision,
    VllmLaunch,
    VllmRequest,
)
from sim.vllm.scheduler.step_limits import drafting_of


class BlockFences:
    """The steps in flight of one server, and the blocks that wait for them.

    On a decode server under async scheduling, KV that comes from elsewhere is not ordered behind
    the steps in flight. So vLLM does not let go of the blocks of a request that is in such a step
    (0.33.0: `_free_request_blocks`, `_drain_deferred_frees`).

    Attributes:
        held: blocks of requests that have ended, oldest first: the step after which they are
            freed, the blocks, and the number of tokens in them.
    """

    def __init__(self) -> None:
        self.held: deque[tuple[VllmLaunch, RequestBlocks, int]] = deque()
        self._in_flight: deque[VllmLaunch] = deque()

    def launched(self, launch: VllmLaunch) -> None:
        self._in_flight.append(launch)

    def ended(self) -> list[tuple[RequestBlocks, int]]:
        """The oldest step has ended; returns the blocks that are to be freed now, in order."""
        launch = self._in_flight.popleft()
        freed: list[tuple[RequestBlocks, int]] = []
        while self.held and self.held[0][0] is launch:
            freed.append(self.held.popleft()[1:])
        return freed

    def is_in_flight(self, request: VllmRequest) -> bool:
        return any(request in each.prefill or request in each.decode for each in self._in_flight)

    def hold(self, kv: RequestBlocks, num_tokens: int) -> None:
        """Keep blocks until all steps that are in flight now have ended."""
        self.held.append((self._in_flight[-1], kv, num_tokens))


class KvLoads:
    """The requests of one decode server whose KV is on its way, or was.

    Attributes:
        loading: by rid, requests with blocks whose KV is not known to be there.
        ended: those of `loading` whose transfer has ended, and whether it has failed. The next pass
            that looks at them takes them out.
        orphans: by rid, blocks and tokens of requests that ended while their KV was copied.
        may_wait_for_ever: a prompt of nearly the whole pool never gets blocks beside those of its
            first step with drafts, until its client gives up (vLLM's, too).
        started: requests whose transfer begins with this decision, with the tokens found here.
        has_chunk: requests with a chunk of their prompt in this decision. vLLM does not count it as
            computed before the decision ends.
        is_last_chance: nothing else will free blocks: no step is in flight, and no KV on its way.
    """

    def __init__(self, config: VllmConfig, memory: KVCacheCoordinator) -> None:
        self.loading: dict[str, VllmRequest] = {}
        self.ended: dict[str, bool] = {}
        self.orphans: dict[str, tuple[RequestBlocks, int]] = {}
        self.started: list[tuple[VllmRequest, int]] = []
        self.is_last_chance = False
        self.has_chunk: set[VllmRequest] = set()
        self._memory = memory
        self._leaves_out_last = config.has_states
        self._reserves = config.rules.reserves_for_loads
        drafting = drafting_of(config)
        # Places that a row needs for its first step with drafts.
        self._num_ahead = 0
        if drafting.num_tokens:
            self._num_ahead = 1 + drafting.num_tokens + drafting.lookahead
        self.may_wait_for_ever = self._reserves and self._num_ahead > 0
        # Requests with chunks of their prompts to come; those that
        # load need more blocks with drafts, and with states.
        self._prefilling: set[VllmRequest] = set()

    def has_to_wait(self, request: VllmRequest) -> bool:
        """Whether a request's KV is still on its way.

        If not, the request is no longer in `loading`; if its KV was lost, its blocks are freed.
        """
        if request.rid not in self.loading:
            return False
        is_lost = self.ended.pop(request.rid, None)
        if is_lost is None:
            return True
        del self.loading[request.rid]
        if is_lost:
            self._memory.free(request.kv, request.seq_len)
            request.seq_len = 0
            self._prefilling.add(request)
        return False

    def has_lost(self, request: VllmRequest) -> bool:
        """Whether a request has lost its KV, and no longer waits for any."""
        return not request.seq_len and request in self._prefilling

    def num_wanted(self, request: VllmRequest) -> int:
        """Tokens of a prompt whose KV is fetched; with states, the last one is computed here."""
        return request.prompt_len - (self._leaves_out_last and request.prompt_len > 1)

    def begin(
        self, request: VllmRequest, hit: CacheHit, num_tokens: int, num_whole: int, num_spare: int
    ) -> bool:
        """Allocate blocks for KV that is fetched, if there is room beside what others still need.

        Args:
            request: a request without blocks.
            hit: what of its prompt is cached here.
            num_tokens: its first tokens, which it has KV of when all has come.
            num_whole: see `KVCacheCoordinator.can_admit`.
            num_spare: see there, too.
        """
        memory = self._memory
        chunk = Chunk(num_tokens, num_tokens, request.prompt_len)
        num_reserved = self._num_reserved() if self._reserves else 0
        if not memory.can_admit(hit, chunk, num_whole, num_spare, num_reserved):
            return False
        memory.admit(request.kv, hit, chunk)
        request.pulls = False
        request.seq_len = num_tokens
        self.loading[request.rid] = request
        self.started.append((request, hit.num_tokens))
        if self._num_ahead or self._leaves_out_last or num_tokens < request.num_tokens:
            self._prefilling.add(request)
        return True

    def _num_reserved(self) -> int:
        """Blocks that prompts in progress, and the first step of this one with drafts, need.

        A prompt whose KV was lost is in progress, too, even if it is the one that would load.
        """
        memory, num_ahead = self._memory, self._num_ahead
        num_blocks = memory.num_lookahead_blocks(num_ahead)
        for request in self._prefilling:
            num_tokens = request.num_tokens + num_ahead
            if request.seq_len:
                start = request.prefix_len if request in self.has_chunk else request.seq_len
                rest = Chunk(start, num_tokens, request.prefill_end, num_ahead)
                num_blocks += memory.num_blocks_for_rest(request.kv, rest)
            else:
                # Its KV was lost, and all of its blocks with it.
                whole = Chunk(0, num_tokens, request.prefill_end, num_ahead)
                num_blocks += memory.num_blocks_for_whole(whole)
        return num_blocks

    def admitted(self, request: VllmRequest) -> None:
        """A request is admitted; it may have more chunks to come."""
        self.has_chunk.add(request)
        if request.pulls:
            # Nothing of its prompt has to be fetched.
            request.pulls = False
            self.started.append((request, request.prompt_len))
        if request.is_prefilling:
            self._prefilling.add(request)

    def launched(self, prefill: list[VllmRequest]) -> None:
        """A step computes these chunks of prompts."""
        for request in prefill:
            if not request.is_prefilling:
                self._prefilling.discard(request)

    def forget(self, request: VllmRequest) -> bool:
        """A request ends, or loses its blocks; whether its KV is still on its way."""
        self._prefilling.discard(request)
        is_loading = self.loading.pop(request.rid, None) is not None
        return self.ended.pop(request.rid, None) is None and is_loading

    def keep(self, request: VllmRequest) -> None:
        """Keep the blocks of a request that has ended until it is heard that they may be freed."""
        self._memory.detach(request.kv, request.seq_len)
        self.orphans[request.rid] = request.kv, request.seq_len


def fences_of(config: VllmConfig) -> BlockFences | None:
    """Fences of a server to which KV comes from elsewhere, if it has steps in flight."""
    overlaps = config.async_scheduling or config.micro_batches > 1
    return BlockFences() if overlaps and config.rules.fences_blocks else None


class Connector:
    """Base class, and the role of a server that computes whole requests.

    Attributes:
        most_output_tokens: output tokens of a request on this server; None: as it asks for.
        decodes: requests decode here when their prompts are computed.
        keeps_token: a request that is preempted gets its token in flight (rule 13).
        frees_skipped_first: at the end of a request, blocks that its windows have left are freed
            before the others (`_connector_finished` of vLLM's scheduler).
        loads: KV that comes from elsewhere; None: none does.
        fences: blocks that steps in flight may write into; None: they need no protection.
        looks_up: a waiting request without blocks is looked up elsewhere, too (`num_loadable`).
        stores: those below CPU memory, in the order in which they are asked.
    """

    def __init__(self) -> None:
        self.most_output_tokens: int | None = None
        self.decodes = self.keeps_token = True
        self.frees_skipped_first = self.looks_up = False
        self.loads: KvLoads | None = None
        self.fences: BlockFences | None = None
        self.stores: Sequence[Store] = ()

    def arrived(self, request: VllmRequest) -> None:
        """A request is new on this server."""

    def share_stores(self, stores: Sequence[Store]) -> None:
        """See `BaseScheduler.share_stores`."""

    def num_loadable(self, request: VllmRequest, num_found: int) -> int | None:
        """With `looks_up`: tokens that are there behind the first ones, found here.

        None: that is not known yet, and the request waits.
        """
        return 0

    def step_waits_for(self, request: VllmRequest, num_found: int, num_wanted: int) -> bool:
        """Whether this step waits until what is there is loaded, and computes what follows it.

        Otherwise the request is in no step until the load has ended.
        """
        return False

    def load(self, request: VllmRequest, num_found: int, num_wanted: int) -> None:
        """A request has got blocks for what is loaded behind the first tokens, found here."""

    def ended(self, request: VllmRequest, *, is_aborted: bool) -> None:
        """A request ends; its blocks are freed next."""

    def takes_blocks(self, request: VllmRequest) -> bool:
        """A request has ended; whether its blocks stay, as its KV is on its way, or is copied."""
        loads = self.loads
        if loads is None or not (loads.forget(request) or self.is_copied(request)):
            return False
        loads.keep(request)
        return True

    def forget(self, request: VllmRequest) -> None:
        """A request loses its blocks, or ends without any."""
        if self.loads is not None:
            self.loads.forget(request)

    def is_copied(self, request: VllmRequest) -> bool:
        """A request has ended, and some copy of its blocks has not."""
        return False

    def unheard(self) -> list[str]:
        """Rids of ended requests, whose copies the scheduler hears of when there are others."""
        return []

    def hold(self, request: VllmRequest) -> None:
        """The first token of a request is known, and its blocks stay until they are fetched."""
        raise NotImplementedError

    def let_go(self, request: VllmRequest) -> None:
        """The held blocks of a request have been fetched, or are no longer wanted."""
        raise NotImplementedError

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        """Until when blocks are kept that were computed, and lost on their way."""
        raise NotImplementedError

    def requests(self) -> Iterable[VllmRequest]:
        """Requests whose answers are complete and whose blocks are not."""
        return ()

    def decides(self, *, has_in_flight: bool) -> None:
        """A decision begins."""

    def decided(self, decision: VllmDecision, partner: Partner) -> None:
        """A decision has been taken."""

    def repeats(self, rows: Iterable[VllmRequest]) -> bool:
        """Whether nothing of this changes while these rows decode."""
        return self.fences is None or not self.fences.held

    @property
    def waits(self) -> bool:
        """Whether it is no error that the server launches nothing: something will happen later."""
        return False

    def blocks_of_ended(self) -> list[tuple[RequestBlocks, int]]:
        """Blocks of requests that have ended, which are not freed yet, and the tokens in them."""
        orphans = [] if self.loads is None else self.loads.orphans.values()
        held = [] if self.fences is None else [each[1:] for each in self.fences.held]
        return [*orphans, *held]

    def copied_blocks(self) -> list[int]:
        """Blocks with a user more because they are copied, one time for each such user."""
        return []


class PrefillConnector(Connector):
    """Of a server that computes prompts for decode servers."""

    def __init__(self, config: VllmConfig) -> None:
        super().__init__()
        self._rules = config.rules
        self._leaves_out_last = config.has_states
        # Requests whose blocks have not been fetched yet, in order of their first tokens.
        self._held: dict[str, VllmRequest] = {}
        # A router asks a prefill server for a single token.
        self.most_output_tokens = 1
        self.decodes = False
        # The KV of a victim is gone, and its token without it of no use.
        self.keeps_token = config.keeps_tokens_in_flight
        self.frees_skipped_first = True

    def arrived(self, request: VllmRequest) -> None:
        """With states, the decode server computes the last token of the prompt alone.

        It needs the state before that token, and would not get back to it from the one behind
        (`_prefill_backoff` of v1/nixl/base_scheduler.py).
        """
        if self._leaves_out_last and request.prompt_len > 1:
            request.prompt_len -= 1
            request.kv.prompt_len -= 1

    def hold(self, request: VllmRequest) -> None:
        self._held[request.rid] = request

    def let_go(self, request: VllmRequest) -> None:
        del self._held[request.rid]

    def requests(self) -> Iterable[VllmRequest]:
        return self._held.values()

    @property
    def waits(self) -> bool:
        return bool(self._held)

    def lease_end_ns(self, computed_ns: int, lost_ns: int) -> int:
        """Until when blocks are kept that the decode server could not fetch.

        It extends the lease every few seconds while it waits, here until the transfer is lost.
        """
        return max(
            computed_ns + self._rules.kv_lease_s * NS_PER_S,
            lost_ns + self._rules.kv_lease_extension_s * NS_PER_S,
        )


class DecodeConnector(Connector):
    """Of a server that decodes what prefill servers have begun."""

    def __init__(self, config: VllmConfig, memory: KVCacheCoordinator) -> None:
        super().__init__()
        self.fetched = self.loads = KvLoads(config, memory)
        self.frees_skipped_first = True
        self.fences = fences_of(config)

    def arrived(self, request: VllmRequest) -> None:
        request.pulls = True

    def decides(self, *, has_in_flight: bool) -> None:
        loads, waits_for_steps = self.fetched, has_in_flight or bool(self.fetched.orphans)
        loads.is_last_chance = not waits_for_steps and len(loads.loading) == len(loads.ended)

    def decided(self, decision: VllmDecision, partner: Partner) -> None:
        launch = decision.launch
        if launch is not None:
            self.fetched.launched(launch.prefill)
            if self.fences is not None:
                self.fences.launched(launch)
        started, self.fetched.started = self.fetched.started, []
        for request, num_cached in started:
            partner.allocated(request.rid, num_cached)

    @property
    def waits(self) -> bool:
        return bool(self.fetched.loading or self.fetched.orphans or self.fetched.may_wait_for_ever)
