"""What the scheduler of every family must do, tested through the engine that uses it."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from sim.core.batch import Batch
from sim.core.request import RequestSpec, Status
from sim.core.tokens import SegmentPrompt
from sim.engine.core import EngineCore
from sim.engine.executor import OutputScript, ScriptedExecutor
from sim.engine.page_pool import PageIds
from sim.engine.server_config import ServerConfig
from sim.families import build_engine, check_engine
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


class _Server:
    """Serves requests that all arrive at the start. Under overlap, results come one step late.

    Attributes:
        engine: the engine under test.
        horizon: how many further decode steps the engine foresaw after the last decision.
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

        Raises:
            RuntimeError: some requests are unfinished after `max_decisions` decisions.
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
        server = _Server(make_config(_ROOMY, 4, _MAX_ROWS), ())
        decided = server.engine.begin_step(0)
        assert decided.batch is None
        assert decided.wakes_ns is None
        assert _is_all_free(server.engine)

    def test_scheduler_rows_are_distinct_and_not_too_many(self, make_config: MakeConfig) -> None:
        """A batch has at most the allowed number of rows, all of different, unfinished requests."""
        server = _Server(make_config(_ROOMY, 4, _MAX_ROWS), requests_to_serve())
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
            server = _Server(make_config(_ROOMY, page_size, _MAX_ROWS), requests)
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
            server = _Server(make_config(pool_tokens, 4, _MAX_ROWS), requests_to_serve())
            num_batches = sum(1 for _ in server.batches())
            assert num_batches > 1
            assert server.engine.begin_step(10**12).batch is None
            assert _is_all_free(server.engine)

    def test_scheduler_rejects_what_can_never_fit(self, make_config: MakeConfig) -> None:
        """A prompt as large as the pool is refused; one that fits gets all tokens it asks for."""
        server = _Server(make_config(_TIGHT, 4, _MAX_ROWS), ())
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
            server = _Server(make_config(pool_tokens, 4, _MAX_ROWS), requests_to_serve())
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
