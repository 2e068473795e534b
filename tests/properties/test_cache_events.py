"""INV-20: a router's index holds what the caches hold, and listening to them changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import ArrayPrompt
from sim.des.routers.kv_aware import KvAware
from sim.engine.acceptance import AcceptanceByPosition, Speculation
from sim.engine.request import OutputTokens
from sim.sglang.cache.settings import WindowSettings
from sim.sglang.cache.tree.prefix_cache import pairs_of
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import SchedulerConfig
from sim.vllm.config import VllmConfig
from sim.vllm.request import LookaheadBlocks, RequestBlocks
from sim.workload.workload import listed
from tests.support.random_scenarios import random_scenarios, scheduler_configs
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

_END_NS = 1 << 62


class Turns(KvAware):
    """Listens to the caches, but sends requests in turn; calls `look` before each choice."""

    def __init__(self, delay_ns=0, look=lambda *_: None):
        super().__init__(
            event_delay_ns=delay_ns,
            overlap_credit=1,
            prefill_load_scale=1,
            track_prefill_tokens=False,
            track_active_blocks=False,
            temperature=0,
        )
        self.look, self.engines, self.sent = look, [], 0

    def choose(self, spec, replicas):
        self.engines = [replica.engines for replica in replicas]
        super().choose(spec, replicas)
        self.look(self, spec)
        self.sent += 1
        return (self.sent - 1) % len(replicas)


def in_tree(memory):
    """The keys of all pages on the device, read from the radix tree itself."""
    cache, keys = memory.cache, set()
    if not isinstance(cache, RadixCache):
        return keys
    for node in cache.root.below():
        path, above = [], node
        while above is not None:
            path.append(above.token_ids[:])
            above = above.parent
        keys |= set(memory_keys(memory, np.concatenate(path[::-1])))
    return keys


def memory_keys(memory, compared):
    """The keys of tokens as the tree has them, which may be numbers for pairs of tokens."""
    pairs, memory.compares_pairs = memory.compares_pairs, False
    keys = memory._block_keys(compared)
    memory.compares_pairs = pairs
    return keys


def compare_trees(router, spec):
    for number, engines in enumerate(router.engines):
        held = router.index.held(number)
        assert held == [frozenset(in_tree(engine.kv)) for engine in engines]


def no_outputs(*_):
    raise AssertionError("the whole sequence is in the prompt")


def num_found(memory, prompt):
    """Blocks that vLLM's own look-up finds of a prompt."""
    if not memory._rules.enable_caching:
        return 0
    lookahead = memory._rules.hash_lookahead
    kind = LookaheadBlocks if lookahead else RequestBlocks
    kv = kind(ArrayPrompt(prompt), OutputTokens(no_outputs, no_outputs))
    most = (len(prompt) - lookahead) // memory.page_size
    return len(memory.managers[0].find_from(kv, 0, most))


def compare_finds(router, spec):
    """Blocks with outputs are reported when their request ends; until then the cache has more."""
    prompt = spec.prompt.token_ids()
    keys = router.keys_of(prompt)
    for number, engines in enumerate(router.engines):
        found = [num_found(engine.kv, prompt) for engine in engines]
        assert router.index.num_cached(keys, number) <= max(found)


def run(scenario, router, **how):
    return serve(
        scenario.workload,
        scenario.config,
        scenario.latencies(),
        router=router,
        check=False,
        **how,
    )


def sequences(workload):
    """The tokens of each request, its whole answer included."""
    turns = [turn.request for client in workload.clients for turn in client]
    for request in [*workload.arrivals(), *turns]:
        answer = request.script.token_ids(request.script.num_tokens)
        yield np.concatenate([request.spec.prompt.token_ids(), answer])


ranks = st.sampled_from((1, 1, 2))


@given(scenario=random_scenarios(scheduler_configs(), impatient=True), ranks=ranks)
def test_index_any_sglang_server_holds_the_tree_at_each_arrival(scenario, ranks):
    """Without a delay, with evictions, retractions, aborts, host memory, and several ranks."""
    scenario = replace(scenario, ranks=ranks)
    router = Turns(look=compare_trees)
    run(scenario, router)
    router.index.advance(_END_NS)
    compare_trees(router, None)


@given(scenario=random_scenarios(vllm_configs(), impatient=True), ranks=ranks)
def test_index_any_vllm_server_finds_what_the_pool_finds(scenario, ranks):
    """At arrivals never more than the pool; when all requests are over, exactly as much."""
    scenario = replace(scenario, ranks=ranks)
    router = Turns(look=compare_finds)
    run(scenario, router)
    router.index.advance(_END_NS)
    for tokens in sequences(scenario.workload):
        keys = router.keys_of(tokens)
        for number, engines in enumerate(router.engines):
            found = max(num_found(engine.kv, tokens) for engine in engines)
            assert router.index.num_cached(keys, number) == found


def conversations(num_requests):
    """Requests that quote one of three earlier prompts and answers, more than a pool holds."""
    return listed(
        [
            scripted(
                f"r{i}",
                (i % 3, 30 + i % 7),
                (50 + i // 6, 20),
                output=9,
                output_seed=7,
                arrival_ns=i * 8_000_000,
            )
            for i in range(num_requests)
        ]
    )


EAGLE = Speculation("eagle", 2, AcceptanceByPosition([0.5, 0.5], ()))


@pytest.mark.parametrize("window", [None, WindowSettings(16, 320, 8)])
def test_index_sglang_server_with_drafts_holds_its_pairs(window):
    """A tree of pairs of tokens, with and without windows; a prompt is compared in the same way."""
    config = SchedulerConfig(
        page_size=4,
        max_total_tokens=320,
        max_running_requests=3,
        speculative_algorithm="EAGLE",
        speculation=EAGLE,
        window=window,
    )
    router = Turns(look=compare_trees)
    workload = conversations(60)
    serve(workload, config, [linear_latency(), linear_latency()], router=router)
    router.index.advance(_END_NS)
    compare_trees(router, None)
    if window is None:
        for tokens in sequences(workload):
            for number, (engine,) in enumerate(router.engines):
                match = engine.kv.cache.match(pairs_of(tokens), len(tokens))
                num_cached = router.index.num_cached(router.keys_of(tokens), number)
                assert num_cached * 4 == match.num_tokens


@pytest.mark.parametrize("is_async", [False, True])
def test_index_vllm_server_with_drafts_finds_what_the_pool_finds(is_async):
    """Blocks are hashed with the token behind them."""
    config = VllmConfig(
        version="0.33.0",
        max_num_batched_tokens=64,
        max_num_seqs=3,
        max_model_len=128,
        block_size=4,
        num_gpu_blocks=81,
        async_scheduling=is_async,
        speculation=EAGLE,
    )
    router = Turns(look=compare_finds)
    workload = conversations(60)
    serve(workload, config, [linear_latency(), linear_latency()], router=router)
    router.index.advance(_END_NS)
    longest = 0
    for tokens in sequences(workload):
        for number, (engine,) in enumerate(router.engines):
            num_cached = router.index.num_cached(router.keys_of(tokens), number)
            assert num_cached == num_found(engine.kv, tokens)
            longest = max(longest, num_cached)
    assert longest > 8


@given(scenario=random_scenarios(impatient=True), delay_ns=st.sampled_from((0, 1, 7_000_000)))
def test_listening_any_scenario_changes_no_decision(scenario, delay_ns):
    """The run log is that of a router which sends requests in turn and listens to nothing."""
    listened = run(scenario, Turns(delay_ns), fast_forward=False)
    alone = run(scenario, None, fast_forward=False)
    assert listened.text == alone.text
