"""A server of family vllm, stepped by hand."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from sim.core.batch import ScriptedExecutor
from sim.core.request import Status
from sim.engine.page_pool import PageCounts
from sim.families import build_engine, check_engine
from sim.vllm.config import VllmConfig
from tests.support.workloads import scripted


class Server:
    """One server whose steps take 1 ms. All invariants are checked after each.

    Attributes:
        records: records of finished requests, by rid.
        decided: the engine's last answer.
    """

    def __init__(self, **settings):
        config = VllmConfig(**{"async_scheduling": False, **settings})
        longest = settings.get("max_model_len", config.pool_tokens)
        self.config = replace(config, max_model_len=longest)
        self.executor = ScriptedExecutor()
        pool = PageCounts(self.config.num_gpu_blocks - 1, self.config.block_size)
        self.engine = build_engine(self.config, pool=pool, executor=self.executor)
        self.records = {}
        self.decided = None
        self._flying = deque()
        self._now_ns = 0

    def add(self, rid, *segments, output=100, **facts):
        """A request arrives. The prompt is `(seed, num_tokens)` pieces, or its unshared length."""
        segments = [(sum(rid.encode()), n) if isinstance(n, int) else n for n in segments]
        request = scripted(rid, *segments, output=output, **facts)
        if (rejection := self.engine.rejection(request.spec)) is not None:
            self.records[rid] = rejection
            return
        self.executor.add(rid, request.script, ignore_eos=request.spec.ignore_eos)
        self.engine.submit(request.spec)

    def decide(self):
        """Decide a batch; returns the tokens of each row, in order. Its result comes later."""
        self.decided = self.engine.begin_step(self._now_ns)
        batch = self.decided.batch
        if batch is None:
            return {}
        self._flying.append(batch)
        prefill = {row.rid: row.extend_len for row in batch.prefill}
        return prefill | dict.fromkeys(batch.decode_rids, 1)

    def land(self):
        """Take in the result of the oldest batch; returns the requests that finished."""
        self._now_ns += 1_000_000
        batch = self._flying.popleft()
        over = self.engine.end_step(batch, self.executor.execute(batch), self._now_ns)
        self.records |= {record.spec.rid: record for record in over}
        check_engine(self.engine)
        return [record.spec.rid for record in over]

    def step(self):
        """Decide a batch and wait for its result; returns the tokens of each row."""
        decided = self.decide()
        if decided:
            self.land()
        return decided

    def step_ahead(self):
        """Decide a batch while the previous one runs, then take in that one's result."""
        decided = self.decide()
        if len(self._flying) > bool(decided):
            self.land()
        return decided

    def finish(self):
        """Serve all requests to their end; returns the tokens of each row of each step."""
        step = self.step_ahead if self.config.async_scheduling else self.step
        steps = []
        while self.engine.requests or self._flying:
            steps.append(step())
        return steps

    @property
    def running(self):
        return "".join(r.rid for r in self.engine.scheduler.admitted if r.status is Status.RUNNING)

    @property
    def waiting(self):
        return "".join(request.rid for request in self.engine.scheduler.waiting_requests())

    @property
    def preempted(self):
        """Of the last decision: (request that lacked blocks, requests preempted for it)."""
        return [(by, victim) for by, victims in self.decided.preempted for victim in victims]

    @property
    def num_free_blocks(self):
        return self.engine.kv.num_free_pages

    def cached(self, rid):
        """Cached prompt tokens at a request's first admission."""
        if rid in self.records:
            return self.records[rid].cached_tokens
        return self.engine.requests[rid].cached_tokens


@pytest.fixture
def make_server() -> Callable[..., Server]:
    return Server
