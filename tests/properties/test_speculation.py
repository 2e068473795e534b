"""Speculative decoding on random traffic: what it must not change, and what must add up."""

from dataclasses import replace
from math import lcm
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.acceptance import AcceptanceByPosition, Speculation
from sim.engine.page_pool import PageCounts
from sim.engine.replay import RankReplay, of_one_server, replay
from sim.families import build_engine, build_executor
from sim.latency.kinds.recorded import RecordedLatency
from sim.sglang.cache.settings import HostCacheSettings, StateSettings, WindowSettings
from sim.sglang.config import SchedulerConfig, StaticSettings
from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.random_drafts import METHODS, sglang_with_drafts, speculations
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

# SGLang refuses the other methods with ranks.
RANKED = ("eagle", "mtp")


@st.composite
def traffics(draw, most_requests=12, longest_output=16):
    """Requests of which some share a beginning, and some ignore end tokens."""
    requests = []
    for i in range(draw(st.integers(1, most_requests))):
        pieces = [(draw(st.integers(0, 2)), draw(st.integers(1, 24)))]
        if draw(st.booleans()):
            pieces.append((100 + i, draw(st.integers(1, 12))))
        output = draw(st.integers(1, longest_output))
        requests.append(
            scripted(
                f"r{i}",
                *pieces,
                output=output,
                limit=draw(st.sampled_from((output, output + 3))),
                arrival_ns=draw(st.integers(0, 20)) * 5_000_000,
                priority=draw(st.integers(-1, 1)),
                ignore_eos=draw(st.booleans()),
                output_seed=draw(st.sampled_from((7, 8))),
            )
        )
    return listed(sorted(requests, key=lambda request: request.spec.arrival_ns))


@st.composite
def vllm_configs(draw):
    """Pools with room for one long request, or for a few; both versions with drafts."""
    block_size = draw(st.sampled_from((1, 4, 16)))
    num_blocks = -(-64 // block_size) + draw(st.integers(0, 64 // block_size))
    slots = draw(st.integers(1, 6))
    return VllmConfig(
        version=draw(st.sampled_from(("0.33.0", "0.19.0"))),
        max_num_batched_tokens=2 * slots + draw(st.sampled_from((8, 60))),
        max_num_seqs=slots,
        max_model_len=64,
        block_size=block_size,
        num_gpu_blocks=num_blocks + 1,
        enable_prefix_caching=draw(st.booleans()),
        scheduling_policy=draw(st.sampled_from(("fcfs", "priority"))),
        async_scheduling=draw(st.booleans()),
    )


def state_settings(draw, page_size, rows, *, overlaps):
    """A pool of states that is just large enough, or a little larger."""
    num_tracked = 2 if overlaps else draw(st.sampled_from((0, 1))) if page_size == 1 else 1
    checkpoint = lcm(draw(st.sampled_from((4, 16))), page_size)
    num_states = (3 + num_tracked) * rows + draw(st.sampled_from((0, 1, 5)))
    return StateSettings(num_states, num_tracked, checkpoint, checkpoint, checkpoint)


@st.composite
def sglang_configs(draw):
    """Pools with room for one long request and places for its drafts, or for a few."""
    pool_tokens, page_size = 128 + draw(st.integers(0, 80)), draw(st.sampled_from((1, 4, 16)))
    kinds = ("one pool", "one pool", "windows", "states", "host memory", "no cache")
    memory, rows = draw(st.sampled_from(kinds)), draw(st.integers(1, 6))
    host = HostCacheSettings(96, draw(st.sampled_from((None, 1, 2))), 0)
    window = WindowSettings(draw(st.sampled_from((5, 16))), pool_tokens // page_size * page_size, 8)
    turns, batch_size = draw(st.sampled_from((None, None, 1, 3))), draw(st.integers(1, 5))
    syncs = draw(st.booleans()) or turns is not None
    batching = StaticSettings(batch_size, draw(st.integers(0, 5)) * 10_000_000)
    return SchedulerConfig(
        schedule_policy=draw(st.sampled_from(("fcfs", "lpm", "lof"))),
        page_size=page_size,
        max_total_tokens=pool_tokens,
        chunked_prefill_size=draw(st.sampled_from((-1, 16, 64))),
        max_running_requests=rows,
        schedule_conservativeness=draw(st.sampled_from((0.1, 1.0))),
        disable_radix_cache=memory == "no cache",
        host_cache=host if memory == "host memory" else None,
        window=window if memory == "windows" else None,
        states=state_settings(draw, page_size, rows, overlaps=not syncs)
        if memory == "states"
        else None,
        disable_overlap_schedule=syncs,
        enable_mixed_chunk=draw(st.booleans()) and turns is None,
        decode_max_requests=turns,
        static_batching=draw(st.sampled_from((None, None, batching))),
    )


configs = st.one_of(vllm_configs(), sglang_configs())


def with_drafts(config, speculation):
    """The configuration with speculative decoding."""
    if isinstance(config, VllmConfig):
        return replace(config, speculation=speculation)
    return sglang_with_drafts(config, speculation)


def outcomes(served):
    """What came out of each request, whenever it did."""
    requests = served.log.requests
    ends = zip(requests.status, requests.output_tokens.tolist(), strict=True)
    return dict(zip(requests.rid, ends, strict=True))


@given(configs, speculations(), traffics())
def test_drafts_change_no_output_and_add_up(config, speculation, traffic):
    """Every token comes out once; blocks, budget and slots hold (`serve` checks the invariants)."""
    plain = serve(traffic, config)
    served = serve(traffic, with_drafts(config, speculation))
    assert outcomes(served) == outcomes(plain)
    requests = served.log.requests
    assert (requests.accepted_tokens <= requests.drafted_tokens).all()
    assert (requests.drafted_tokens <= requests.verify_steps * speculation.num_tokens).all()
    for step in served.steps:
        num_drafts = step.get("drafts", [])
        assert len(num_drafts) == step["n_decode"]
        assert max(num_drafts, default=0) <= speculation.num_tokens
        num_tokens = sum(extend for _, _, extend in step["prefill"]) + sum(num_drafts)
        if isinstance(config, VllmConfig):
            assert num_tokens + step["n_decode"] <= config.max_num_batched_tokens


@given(configs, speculations(), traffics())
def test_a_replay_decides_the_same(config, speculation, traffic):
    """A new engine with the log's arrivals and times."""
    config = with_drafts(config, speculation)
    steps = serve(traffic, config).steps
    executor = build_executor(config)
    for request in traffic.arrivals():
        executor.add(request.spec.rid, request.script, ignore_eos=request.spec.ignore_eos)
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    engine = build_engine(config, pool=pool, executor=executor)
    arrivals = [request.spec for request in traffic.arrivals()]
    server = RankReplay(engine, executor, arrivals)
    assert replay([server], of_one_server(steps), overlaps=config.overlaps) is None


@given(configs, st.sampled_from(METHODS), st.integers(1, 4), traffics())
def test_accepted_drafts_do_not_depend_on_the_server(config, method, num_drafts, traffic):
    """A request alone on a large server accepts the same drafts, unless a step has fewer of them.

    That is so if the budget cuts some, if a request is put back, and in mixed steps.
    """
    acceptance = AcceptanceByPosition([0.6] * num_drafts)
    if isinstance(config, VllmConfig):
        large = replace(config, max_num_batched_tokens=4096, num_gpu_blocks=4096)
        tight = replace(large, num_gpu_blocks=config.num_gpu_blocks, max_num_seqs=8)
    else:
        large, tight = replace(config, enable_mixed_chunk=False, max_total_tokens=4096), config
    seen = []
    for each in (large, tight):
        speculating = with_drafts(each, Speculation(method, num_drafts, acceptance))
        requests = serve(traffic, speculating).log.requests
        was_put_back = requests.preemptions.any() or requests.retractions.any()
        if not (was_put_back or getattr(speculating, "enable_mixed_chunk", False)):
            seen.append(dict(zip(requests.rid, requests.accepted_tokens.tolist(), strict=True)))
    assert all(counts == seen[0] for counts in seen)


@given(configs, speculations(RANKED), traffics())
def test_ranks_that_step_together_serve_the_same(config, speculation, traffic):
    """Two ranks, each with a scheduler of its own: as many tokens come out."""
    config = with_drafts(config, speculation)
    ranks = serve(traffic, config, [(linear_latency(), linear_latency())])
    assert outcomes(ranks) == outcomes(serve(traffic, config))


@given(configs, speculations(), traffics(most_requests=8, longest_output=80))
def test_passing_many_steps_at_once_leaves_the_same_log(config, speculation, traffic):
    """INV-12: every byte of the decision log, every token gap, count of drafts and figure."""
    config = with_drafts(config, speculation)
    at_once, stepped = serve(traffic, config), serve(traffic, config, fast_forward=False)
    assert at_once.text == stepped.text
    gaps, expected = at_once.log.token_gaps, stepped.log.token_gaps
    assert gaps.gap_ns.tolist() == expected.gap_ns.tolist()
    assert gaps.count.tolist() == expected.count.tolist()
    assert at_once.summary == stepped.summary


@pytest.mark.parametrize("pool_tokens", [8192, 1000], ids=["roomy", "evicting"])
def test_long_decode_takes_few_runs(pool_tokens):
    """Also where each request needs the pages that those before it have left in the cache."""
    speculation = Speculation("eagle", 3, AcceptanceByPosition([0.8, 0.6, 0.4]))
    config = with_drafts(SchedulerConfig(max_total_tokens=pool_tokens, page_size=1), speculation)
    requests = [
        scripted(f"r{i}", (i, 50), output=700, arrival_ns=i * 4_000_000_000) for i in range(6)
    ]
    served = serve(listed(requests), config)
    assert served.num_ended == 6
    assert len(served.steps) > 6 * 250
    assert len(served.log.steps.num_steps) < 6 * 16
    stepped = serve(listed(requests), config, fast_forward=False, check=False)
    assert served.text == stepped.text


def test_a_model_that_remembers_steps_is_asked_step_by_step():
    """A recording's next time is that of the next step, and of no other."""
    speculation = Speculation("eagle", 1, AcceptanceByPosition([0.5]))
    config = with_drafts(SchedulerConfig(), speculation)
    traffic = listed([scripted("r", (1, 20), output=60)])
    times_ns = np.arange(1_000_000, 1_000_100)

    def recorded():
        return [RecordedLatency(Path("steps"), times_ns, np.zeros_like(times_ns))]

    served = serve(traffic, config, recorded())
    assert served.text == serve(traffic, config, recorded(), fast_forward=False).text


@given(configs, traffics())
def test_rejecting_every_draft_yields_a_token_a_step(config, traffic):
    """Then no step gives a request more than one token."""
    speculation = Speculation("eagle", 2, AcceptanceByPosition([0.0, 0.0]))
    served = serve(traffic, with_drafts(config, speculation))
    assert not served.log.requests.accepted_tokens.any()
    assert not (served.log.token_gaps.gap_ns == 0).any()
