"""What the scheduler of every family promises, seen through the engine that it decides for."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from sim.core.batch import Batch
from sim.engine.core import EngineCore
from sim.engine.executor import ScriptedExecutor
from sim.engine.page_pool import PageIds
from sim.engine.server_config import ServerConfig
from sim.families import build_engine, check_engine
from sim.testing.workloads import scripted
from sim.workload.workload import ScriptedRequest

# Tokens of the pool, tokens a page, most rows.
MakeConfig = Callable[[int, int, int], ServerConfig]

_PAGE_SIZES = (1, 4)
_ROOMY = 4_000
_TIGHT = 96
_MOST_ROWS = 5
_STEP_NS = 1_000_000


def requests_to_serve() -> list[ScriptedRequest]:
    """Shared prefixes, prompts of very different lengths; each ends at its limit, at most 80."""
    return [
        scripted(
            f"r{i}",
            (1 + i % 3, 8 + 8 * (i % 3)),
            (10 + i, 1 + 11 * (i % 4)),
            output=1 + 7 * i % 20,
            priority=i % 3,
        )
        for i in range(16)
    ]


class _Server:
    """Serves requests that are all there at the beginning; results a step late under overlap.

    Attributes:
        engine: what decides.
        horizon: how many decisions in a row were known before the last one.
    """

    def __init__(self, config: ServerConfig, requests: Sequence[ScriptedRequest]) -> None:
        self._executor = ScriptedExecutor()
        pool = PageIds(config.pool_tokens // config.page_size, config.page_size)
        self.engine = build_engine(config, pool=pool, executor=self._executor)
        self.horizon = 0
        self._lag = int(config.overlaps)
        self._flying: deque[Batch] = deque()
        self._now_ns = 0
        for request in requests:
            spec = request.spec
            self._executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
            self.engine.submit(spec)

    def batches(self, most: int = 5_000) -> Iterator[Batch]:
        """Each batch that is launched, right after it was decided; all is checked in between.

        Raises:
            RuntimeError: somebody is still there after so many decisions.
        """
        for _ in range(most):
            batch = self.engine.begin_step(self._now_ns).batch
            if batch is not None:
                self._flying.append(batch)
                yield batch
            # Asked with one launch in flight: after this decision, or before the next one.
            self.horizon = self.engine.decode_horizon()
            self._now_ns += _STEP_NS
            if self._flying and (batch is None or len(self._flying) > self._lag):
                ended = self._flying.popleft()
                self.engine.end_step(ended, self._executor.execute(ended), self._now_ns)
            self.horizon = max(self.horizon, self.engine.decode_horizon())
            check_engine(self.engine)
            if not self.engine.requests:
                return
        raise RuntimeError(f"{len(self.engine.requests)} requests do not come to an end")


def _rids(batch: Batch) -> list[str]:
    return [row.rid for row in batch.prefill] + list(batch.decode_rids)


def _is_all_free(engine: EngineCore) -> bool:
    kv, scheduler = engine.kv, engine.scheduler
    num_held = scheduler.num_slots_used + scheduler.num_running + scheduler.num_waiting
    return kv.free_tokens + kv.evictable_tokens == kv.pool_tokens and num_held == 0


class SchedulerContract:
    """Fixture `make_config`: settings of a server, from pool, page size and most rows."""

    def test_scheduler_without_requests_waits_for_one(self, make_config: MakeConfig) -> None:
        """Nothing is launched, no time is waited for, everything is free."""
        server = _Server(make_config(_ROOMY, 4, _MOST_ROWS), ())
        decided = server.engine.begin_step(0)
        assert decided.batch is None
        assert decided.wakes_ns is None
        assert _is_all_free(server.engine)

    def test_scheduler_rows_are_distinct_and_not_too_many(self, make_config: MakeConfig) -> None:
        """Nobody has two rows in a batch, or one that is over; there are as many as may be."""
        server = _Server(make_config(_ROOMY, 4, _MOST_ROWS), requests_to_serve())
        most = 0
        for batch in server.batches():
            rids = _rids(batch)
            assert len(set(rids)) == len(rids) <= _MOST_ROWS
            assert set(rids) <= set(server.engine.requests)
            most = max(most, len(rids))
        assert most > 1

    def test_scheduler_with_room_computes_each_token_once(self, make_config: MakeConfig) -> None:
        """Pieces of a prompt follow one another, the last one samples; then a row for each token.

        The last token that a request generates is never computed.
        """
        for page_size in _PAGE_SIZES:
            requests = requests_to_serve()
            server = _Server(make_config(_ROOMY, page_size, _MOST_ROWS), requests)
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
        """Whether or not memory was short."""
        for pool_tokens in (_ROOMY, _TIGHT):
            server = _Server(make_config(pool_tokens, 4, _MOST_ROWS), requests_to_serve())
            num_batches = sum(1 for _ in server.batches())
            assert num_batches > 1
            assert server.engine.begin_step(10**12).batch is None
            assert _is_all_free(server.engine)

    def test_scheduler_is_asked_for_its_limits_before(self, make_config: MakeConfig) -> None:
        """A prompt as large as the pool is refused; what fits has all the tokens it asks for."""
        server = _Server(make_config(_TIGHT, 4, _MOST_ROWS), ())
        assert server.engine.scheduler.token_limit(_TIGHT, 1) <= 0
        assert server.engine.scheduler.token_limit(40, 20) == 20
        refused = server.engine.rejection(scripted("r", (1, _TIGHT + 1), output=1).spec)
        assert refused is not None
        assert (refused.output_tokens, refused.scheduled_ns) == (0, -1)

    def test_scheduler_repeats_itself_as_long_as_it_says(self, make_config: MakeConfig) -> None:
        """Within the horizon of a step nothing but the same rows is decided."""
        num_foreseen = 0
        for pool_tokens in (_ROOMY, _TIGHT):
            server = _Server(make_config(pool_tokens, 4, _MOST_ROWS), requests_to_serve())
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
