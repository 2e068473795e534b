"""What every family's scheduler must do, tested through an engine; and every eviction policy."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sim.core.batch import Batch, OutputScript, ScriptedExecutor
from sim.core.request import RequestSpec, Status
from sim.core.tokens import SegmentPrompt, stream_token_ids
from sim.engine.core import EngineCore
from sim.engine.page_pool import PageCounts, PageIds
from sim.engine.server_config import ServerConfig
from sim.families import build_engine, check_engine
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import LeafQueue, PrefixMatch, RadixNode
from sim.sglang.config import SchedulerConfig
from sim.sglang.user_rules import EVICTION, guarded_eviction
from sim.testing.user_classes import Contract
from sim.workload.workload import ScriptedRequest

# Called with tokens of the pool, tokens in a page, and the largest number of rows.
MakeConfig = Callable[[int, int, int], ServerConfig]

_PAGE_SIZES = (1, 4)
_ROOMY = 4_000
_TIGHT = 96
_MAX_ROWS = 5
_STEP_NS = 1_000_000


def requests_to_serve() -> list[ScriptedRequest]:
    """Requests with shared prefixes; each has at most 80 tokens, prompt and output together."""
    requests = []
    for i in range(16):
        prompt = SegmentPrompt(((1 + i % 3, 8 + 8 * (i % 3)), (10 + i, 1 + 11 * (i % 4))))
        num_outputs = 1 + 7 * i % 20
        spec = RequestSpec(f"r{i}", 0, prompt, num_outputs, priority=i % 3)
        requests.append(ScriptedRequest(spec, OutputScript(num_outputs, seed=i)))
    return requests


class _ServerUnderTest:
    """Serves requests that all arrive at the start. Under overlap, results come one step late.

    `horizon` is how many further decode steps the engine foresaw after the last decision.
    """

    def __init__(self, config: ServerConfig, requests: Sequence[ScriptedRequest]) -> None:
        self._executor = ScriptedExecutor()
        pool = PageIds(config.pool_tokens // config.page_size, config.page_size)
        self.engine = build_engine(config, pool=pool, executor=self._executor)
        self.horizon = 0
        self._lag = int(config.overlaps)
        self._in_flight: deque[Batch] = deque()
        self._now_ns = 0
        for request in requests:
            spec = request.spec
            self._executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
            self.engine.submit(spec)

    def batches(self, max_decisions: int = 5_000) -> Iterator[Batch]:
        """Yield each batch right after its decision; all invariants are checked after each step.

        Raises RuntimeError: some requests are unfinished after `max_decisions` decisions.
        """
        for _ in range(max_decisions):
            batch = self.engine.begin_step(self._now_ns).batch
            if batch is not None:
                self._in_flight.append(batch)
                yield batch
            # The engine foresees steps while one launch is in flight: now, or after `end_step`.
            self.horizon = self.engine.decode_horizon()
            self._now_ns += _STEP_NS
            if self._in_flight and (batch is None or len(self._in_flight) > self._lag):
                ended = self._in_flight.popleft()
                self.engine.end_step(ended, self._executor.execute(ended), self._now_ns)
            self.horizon = max(self.horizon, self.engine.decode_horizon())
            check_engine(self.engine)
            if not self.engine.requests:
                return
        raise RuntimeError(f"{len(self.engine.requests)} requests are unfinished")


def _rids(batch: Batch) -> list[str]:
    return [row.rid for row in batch.prefill] + list(batch.decode_rids)


def _is_all_free(engine: EngineCore) -> bool:
    kv, scheduler = engine.kv, engine.scheduler
    num_held = scheduler.num_slots_used + scheduler.num_running + scheduler.num_waiting
    return kv.free_tokens + kv.evictable_tokens == kv.pool_tokens and num_held == 0


class SchedulerContract:
    """Fixture `make_config: Callable[[int, int, int], ServerConfig]`; see `MakeConfig`."""

    def test_scheduler_without_requests_waits_for_one(self, make_config: MakeConfig) -> None:
        """Nothing is launched, no wake-up time is set, all memory is free."""
        server = _ServerUnderTest(make_config(_ROOMY, 4, _MAX_ROWS), ())
        decided = server.engine.begin_step(0)
        assert decided.batch is None
        assert decided.wakes_ns is None
        assert _is_all_free(server.engine)

    def test_scheduler_rows_are_distinct_and_not_too_many(self, make_config: MakeConfig) -> None:
        """A batch has at most the allowed number of rows, all of different, unfinished requests."""
        server = _ServerUnderTest(make_config(_ROOMY, 4, _MAX_ROWS), requests_to_serve())
        most = 0
        for batch in server.batches():
            rids = _rids(batch)
            assert len(set(rids)) == len(rids) <= _MAX_ROWS
            assert set(rids) <= set(server.engine.requests)
            most = max(most, len(rids))
        assert most > 1

    def test_scheduler_with_room_computes_each_token_once(self, make_config: MakeConfig) -> None:
        """A prompt's chunks follow one another and the last one samples; then each token has a row.

        The last token that a request generates is never computed.
        """
        for page_size in _PAGE_SIZES:
            requests = requests_to_serve()
            server = _ServerUnderTest(make_config(_ROOMY, page_size, _MAX_ROWS), requests)
            ends: dict[str, int] = {}
            sampled: list[str] = []
            decoded = dict.fromkeys([request.spec.rid for request in requests], 0)
            for batch in server.batches():
                for row in batch.prefill:
                    assert row.rid not in sampled
                    assert row.prefix_len == ends.get(row.rid, row.prefix_len)
                    assert row.extend_len > 0
                    ends[row.rid] = row.prefix_len + row.extend_len
                sampled += [row.rid for row in batch.prefill if row.samples]
                assert set(batch.decode_rids) <= set(sampled)
                for rid in batch.decode_rids:
                    decoded[rid] += 1
            for request in requests:
                rid = request.spec.rid
                assert ends[rid] == len(request.spec.prompt)
                assert decoded[rid] == request.script.num_tokens - 1

    def test_scheduler_gives_everything_back(self, make_config: MakeConfig) -> None:
        """At the end all memory is free, whether or not it was short before."""
        for pool_tokens in (_ROOMY, _TIGHT):
            server = _ServerUnderTest(make_config(pool_tokens, 4, _MAX_ROWS), requests_to_serve())
            num_batches = sum(1 for _ in server.batches())
            assert num_batches > 1
            assert server.engine.begin_step(10**12).batch is None
            assert _is_all_free(server.engine)

    def test_scheduler_rejects_what_can_never_fit(self, make_config: MakeConfig) -> None:
        """A prompt as large as the pool is refused; one that fits gets all tokens it asks for."""
        server = _ServerUnderTest(make_config(_TIGHT, 4, _MAX_ROWS), ())
        assert server.engine.scheduler.token_limit(_TIGHT, 1) <= 0
        assert server.engine.scheduler.token_limit(40, 20) == 20
        spec = RequestSpec("r", 0, SegmentPrompt(((1, _TIGHT + 1),)), 1)
        refused = server.engine.rejection(spec)
        if refused is None:
            # It waits in the queue for its rejection.
            server.engine.submit(spec)
            assert server.engine.requests["r"].end_status is Status.REJECTED
            return
        assert (refused.output_tokens, refused.scheduled_ns) == (0, -1)

    def test_scheduler_repeats_itself_as_long_as_it_says(self, make_config: MakeConfig) -> None:
        """Within the horizon, every decision is a decode step of the same rows."""
        num_foreseen = 0
        for pool_tokens in (_ROOMY, _TIGHT):
            server = _ServerUnderTest(make_config(pool_tokens, 4, _MAX_ROWS), requests_to_serve())
            rids: Sequence[str] = ()
            num_left = 0
            for batch in server.batches():
                num_left = max(num_left, server.horizon)
                if num_left:
                    assert (list(batch.decode_rids), batch.prefill) == (rids, ())
                    num_foreseen += 1
                    num_left -= 1
                rids = list(batch.decode_rids)
        assert num_foreseen > 5


MakeLeaves = Callable[[], LeafQueue]
_NUM_PROMPTS = 40
_PROMPT_TOKENS = 24


def _used_cache(leaves: LeafQueue, seed: int) -> RadixCache:
    """A cache with branches, into which prompts of three families were inserted, some twice."""
    rng = np.random.default_rng(seed)
    pool = PageCounts(10_000, 1)
    cache = RadixCache(pool, leaves)
    for prompt in range(_NUM_PROMPTS):
        shared = int(rng.integers(1, _PROMPT_TOKENS))
        own = int(rng.integers(0, _NUM_PROMPTS // 2))
        ids = np.concatenate(
            [
                stream_token_ids(prompt % 3, 0, shared),
                stream_token_ids(100 + own, 0, _PROMPT_TOKENS - shared),
            ]
        )
        found = cache.match(ids, len(ids)).num_tokens
        pool.reserve(len(ids) - found)
        node, _ = cache.insert(ids, found, pool.take_reserved(len(ids) - found))
        cache.count_use(node, 0)
    return cache


def _nodes(node: RadixNode) -> Iterator[RadixNode]:
    for child in node.children.values():
        yield child
        yield from _nodes(child)


class EvictionContract(Contract):
    """Fixture `make_leaves: Callable[[], LeafQueue]`."""

    fixture = "make_leaves"
    kind = EVICTION
    guard = staticmethod(guarded_eviction)

    def context(self) -> tuple[object, ...]:
        return (SchedulerConfig(max_total_tokens=1_000),)

    def test_eviction_takes_leaves_by_rank(self, make_leaves: MakeLeaves) -> None:
        """Every unlocked leaf once, none before one of lower rank."""
        for seed in range(3):
            leaves = make_leaves()
            cache = _used_cache(leaves, seed)
            waiting = [node for node in _nodes(cache.root) if not node.children]
            while waiting:
                leaf = leaves.pop()
                assert leaf in waiting
                assert leaves.rank(leaf) == min(map(leaves.rank, waiting))
                waiting.remove(leaf)
            assert leaves.pop() is None

    def test_eviction_frees_what_is_asked_for(self, make_leaves: MakeLeaves) -> None:
        """Until nothing is left; nodes in use stay."""
        cache = _used_cache(make_leaves(), 4)
        used = next(node for node in _nodes(cache.root) if not node.children)
        cache.lock(used)
        while cache.evictable_tokens:
            before = cache.evictable_tokens
            assert cache.evict(10) == before - cache.evictable_tokens >= min(10, before)
        assert used.on_device
        assert cache.protected_tokens == used.end

    def test_eviction_asking_for_a_rank_changes_nothing(self, make_leaves: MakeLeaves) -> None:
        """A node that nothing uses keeps its rank, and two equal caches evict the same nodes."""
        one, other = make_leaves(), make_leaves()
        cache, _ = _used_cache(one, 5), _used_cache(other, 5)
        for node in _nodes(cache.root):
            rank = one.rank(node)
            assert one.rank(node) == rank
        evicted = [[leaves.pop() for _ in range(10)] for leaves in (one, other)]
        ends = [[node and (node.rank, node.end) for node in nodes] for nodes in evicted]
        assert ends[0] == ends[1]

    def test_eviction_rank_never_falls(self, make_leaves: MakeLeaves) -> None:
        """A use raises a node's rank or leaves it, so that no queued rank is too high."""
        leaves = make_leaves()
        cache = _used_cache(leaves, 6)
        for node in list(_nodes(cache.root)):
            before = leaves.rank(node)
            cache.touch(PrefixMatch(node))
            cache.count_use(node, 0)
            assert leaves.rank(node) >= before
