"""INV-20: a router's index holds what the caches hold, and listening to them changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.routing import Knowledge, TierCredits
from sim.core.tokens import ArrayPrompt
from sim.des.routers.kv_aware import KvAware
from sim.engine.acceptance import AcceptanceByPosition, Speculation
from sim.engine.request import OutputTokens
from sim.sglang.cache.host.part import HostPart
from sim.sglang.cache.settings import WindowSettings
from sim.sglang.cache.tree.prefix_cache import pairs_of
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import SchedulerConfig
from sim.vllm.config import VllmConfig
from sim.vllm.request import LookaheadBlocks, RequestBlocks
from sim.workload.workload import listed
from tests.properties.test_host_tier import latencies, returning_traffic
from tests.properties.test_offloading import offload_settings
from tests.properties.test_storage_tier import stored_configs, write_through
from tests.support.random_scenarios import random_scenarios, scheduler_configs
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

_END_NS = 1 << 62
ALL_TIERS = TierCredits(1, 0.75, 0.25)


class Turns(KvAware):
    """Listens to the caches, but sends requests in turn; calls `look` before each choice."""

    def __init__(self, delay_ns=0, look=lambda *_: None):
        super().__init__(
            knowledge=Knowledge(True, delay_ns, False, None, None),
            credit=ALL_TIERS,
            prefill_load_scale=1,
            track_prefill_tokens=False,
            track_active_blocks=False,
            temperature=0,
        )
        self.look, self.engines, self.num_sent = look, [], 0

    def choose(self, spec, replicas):
        self.engines = [replica.engines for replica in replicas]
        super().choose(spec, replicas)
        self.look(self, spec)
        self.num_sent += 1
        return (self.num_sent - 1) % len(replicas)


def in_tree(memory):
    """The keys of pages on the device, in host memory and in the store, read from the books."""
    cache, device, host = memory.cache, set(), set()
    nodes = list(cache.root.below()) if isinstance(cache, RadixCache) else []
    has_host = any(isinstance(part, HostPart) for part in memory.parts)
    if has_host:
        nodes += below_on_host([cache.root, *nodes])
    for node in nodes:
        path = memory_keys(memory, path_tokens(node))
        keys = path[(node.end - node.num_tokens) // memory.page_size :]
        if node.on_device:
            device |= set(keys)
        if has_host and node.host.pages is not None and node.host.stored_with is None:
            host |= set(keys)
    return device, host, set() if memory.store is None else set(memory.store._sizes)


def path_tokens(node):
    parts = [node.token_ids[:]]
    while node.parent is not None:
        node = node.parent
        parts.append(node.token_ids[:])
    return np.concatenate(parts[::-1])


def below_on_host(nodes):
    """The nodes that are in host memory alone."""
    found, stack = [], [child for node in nodes for child in node.host.children.values()]
    while stack:
        found.append(stack.pop())
        stack.extend(found[-1].host.children.values())
    return found


def memory_keys(memory, compared):
    """The keys of tokens as the tree has them, which may be numbers for pairs of tokens."""
    pairs, memory.compares_pairs = memory.compares_pairs, False
    keys = memory._block_keys(compared)
    memory.compares_pairs = pairs
    return keys


def compare_trees(router, spec):
    for number, engines in enumerate(router.engines):
        known = [
            (each.device, each.host, each.storage) for each in router.caches.index.known(number)
        ]
        assert known == [in_tree(engine.kv) for engine in engines]


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


def num_cached(router, keys, number):
    """Blocks that the router knows on a replica's device."""
    return router.caches.index.hits(keys, number, _END_NS, TierCredits(1, 0, 0)).device


def compare_finds(router, spec):
    """Blocks with outputs are reported when their request ends; until then the cache has more."""
    prompt = spec.prompt.token_ids()
    keys = router.caches.keys_of(prompt)
    for number, engines in enumerate(router.engines):
        found = [num_found(engine.kv, prompt) for engine in engines]
        assert num_cached(router, keys, number) <= max(found)


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
    router.caches.index.advance(_END_NS)
    compare_trees(router, None)


@given(scenario=random_scenarios(vllm_configs(), impatient=True), ranks=ranks)
def test_index_any_vllm_server_finds_what_the_pool_finds(scenario, ranks):
    """At arrivals never more than the pool; when all requests are over, exactly as much."""
    scenario = replace(scenario, ranks=ranks)
    router = Turns(look=compare_finds)
    run(scenario, router)
    router.caches.index.advance(_END_NS)
    for tokens in sequences(scenario.workload):
        keys = router.caches.keys_of(tokens)
        for number, engines in enumerate(router.engines):
            found = max(num_found(engine.kv, tokens) for engine in engines)
            assert num_cached(router, keys, number) == found


@given(returning_traffic(), stored_configs().map(write_through), st.booleans())
def test_index_any_sglang_server_with_a_store_knows_every_tier(requests, config, is_shared):
    """Two servers, with a store each or one together: device, host memory and store at arrivals."""
    storage = config.host_cache.storage
    storage = replace(storage, store=replace(storage.store, is_shared=is_shared))
    config = replace(config, host_cache=replace(config.host_cache, storage=storage))
    router = Turns(look=compare_trees)
    serve(listed(requests), config, [*latencies(), *latencies()], router=router, check=False)
    router.caches.index.advance(_END_NS)
    compare_trees(router, None)


def in_cpu_memory(engine, workload):
    """The keys of all blocks whose chunk can be found, looked up sequence by sequence."""
    memory, connector = engine.kv, engine.scheduler.connector
    per_chunk, held = connector._blocks_per_chunk, set()
    for tokens in sequences(workload):
        kv = RequestBlocks(ArrayPrompt(tokens), OutputTokens(no_outputs, no_outputs))
        keys = memory._block_keys(tokens)
        for place in range(len(keys) // per_chunk):
            chunk = connector.host.find(connector._search.key(kv, place, 0))
            if chunk is not None and chunk.is_ready:
                held.update(keys[place * per_chunk : (place + 1) * per_chunk])
    return held


@given(scenario=random_scenarios(vllm_configs(), impatient=True), settings=offload_settings())
def test_index_any_vllm_server_with_cpu_memory_knows_its_blocks(scenario, settings):
    """At each arrival and in the end, the blocks of all chunks that can be found, and no others.

    Chunks of several blocks may have some in common. Some have tokens behind the end of a script,
    so they are counted.
    """
    config = replace(scenario.config, version="0.33.0", offload=settings)
    scenario = replace(scenario, config=config)

    def compare(router, spec):
        for number, engines in enumerate(router.engines):
            for cache, engine in zip(router.caches.index.known(number), engines, strict=True):
                chunks = engine.scheduler.connector.host.chunks()
                most = settings.blocks_per_chunk * sum(chunk.is_ready for chunk in chunks)
                assert in_cpu_memory(engine, scenario.workload) <= cache.host
                assert (most > 0) <= len(cache.host) <= most
                assert settings.blocks_per_chunk > 1 or len(cache.host) == most

    router = Turns(look=compare)
    run(scenario, router)
    router.caches.index.advance(_END_NS)
    compare(router, None)


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
    router.caches.index.advance(_END_NS)
    compare_trees(router, None)
    if window is None:
        for tokens in sequences(workload):
            for number, (engine,) in enumerate(router.engines):
                match = engine.kv.cache.match(pairs_of(tokens), len(tokens))
                cached = num_cached(router, router.caches.keys_of(tokens), number)
                assert cached * 4 == match.num_tokens


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
    router.caches.index.advance(_END_NS)
    longest = 0
    for tokens in sequences(workload):
        for number, (engine,) in enumerate(router.engines):
            cached = num_cached(router, router.caches.keys_of(tokens), number)
            assert cached == num_found(engine.kv, tokens)
            longest = max(longest, cached)
    assert longest > 8


@given(scenario=random_scenarios(impatient=True), delay_ns=st.sampled_from((0, 1, 7_000_000)))
def test_listening_any_scenario_changes_no_decision(scenario, delay_ns):
    """The run log is that of a router which sends requests in turn and listens to nothing."""
    listened = run(scenario, Turns(delay_ns), fast_forward=False)
    alone = run(scenario, None, fast_forward=False)
    assert listened.text == alone.text
