"""A prefill pass by hand: a pool, running rows, and prompts offered one by one."""

from collections.abc import Callable

import pytest

from sim.engine.page_pool import PageCounts
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.prefix_cache import NoPrefixCache
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import build_policy
from sim.sglang.scheduler.prefill.adder import PrefillAdder
from sim.sglang.scheduler.server import RowSteps, SglangServer
from sim.testing.contracts.policies import waiting_request


class Pass:
    """One prefill pass of a server with these settings."""

    def __init__(self, *, ratio=0.0, running=(), **settings):
        self.config = SchedulerConfig(**settings)
        page_size = self.config.page_size
        pool = PageCounts(self.config.pool_tokens // page_size, page_size)
        cache = NoPrefixCache() if self.config.disable_radix_cache else RadixCache(pool)
        self.kv = KVCacheManager(pool, cache)
        self.server = SglangServer(self.config, self.kv, RowSteps(self.kv))
        self.running = self.server.running
        for request, num_generated in running:
            self.run(request, num_generated)
        self.adder = PrefillAdder(
            self.server, ratio, cuts_while_chunked=build_policy(self.config).cuts_while_chunked
        )

    def run(self, request, num_generated):
        """Put a request into the running batch; all its KV is its own."""
        request.num_generated = num_generated
        request.seq_len = request.prompt_len + num_generated
        self.kv.lock_prefix(request.kv)
        self.kv.extend([(request.kv, 0, request.seq_len)])
        self.running.append([request])

    def offer(self, rid, num_tokens, limit, *, has_chunked=False, seed=None, **facts):
        """Offer a new prompt to the pass; returns the verdict."""
        seed = seed if seed is not None else sum(rid.encode())
        request = waiting_request(rid, (seed, num_tokens), limit=limit, **facts)
        request.fill_len = request.num_tokens
        num_tokens = request.num_tokens
        request.found(self.kv.find_prefix(request.kv, num_tokens, num_tokens - 1))
        return self.adder.add(request, has_chunked=has_chunked)

    @property
    def admitted(self):
        return [(request.rid, request.extend_len) for request in self.adder.admitted]


@pytest.fixture
def make_pass() -> Callable[..., Pass]:
    return Pass
