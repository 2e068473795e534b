"""Speculative decoding on random traffic: what it must not change, and what must add up."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.acceptance import AcceptanceByPosition, Speculation
from sim.engine.page_pool import PageCounts
from sim.engine.replay import Replay, replay
from sim.families import build_engine, build_executor
from sim.testing.serve import linear_latency, serve
from sim.testing.workloads import ListWorkload, scripted
from sim.vllm.config import VllmConfig

METHODS = ("ngram", "eagle", "mtp", "draft_model")


@st.composite
def traffics(draw):
    """Requests of which some share a beginning, and some ignore end tokens."""
    requests = []
    for i in range(draw(st.integers(1, 12))):
        pieces = [(draw(st.integers(0, 2)), draw(st.integers(1, 24)))]
        if draw(st.booleans()):
            pieces.append((100 + i, draw(st.integers(1, 12))))
        output = draw(st.integers(1, 16))
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
    return ListWorkload(sorted(requests, key=lambda request: request.spec.arrival_ns))


@st.composite
def speculations(draw):
    num_drafts = draw(st.integers(1, 5))
    shares = draw(st.lists(st.sampled_from((0.0, 0.5, 0.9, 1.0)), min_size=num_drafts))
    method = draw(st.sampled_from(METHODS))
    nothing = draw(st.sampled_from((0.0, 0.3, 1.0)))
    proposed = [nothing, *[(1 - nothing) / num_drafts] * num_drafts]
    acceptance = AcceptanceByPosition(shares[:num_drafts], proposed if method == "ngram" else ())
    return Speculation(method, num_drafts, acceptance)


@st.composite
def configs(draw):
    """Pools with room for one long request, or for a few; both versions with drafts."""
    block_size = draw(st.sampled_from((1, 4, 16)))
    num_blocks = -(-64 // block_size) + draw(st.integers(0, 64 // block_size))
    seats = draw(st.integers(1, 6))
    return VllmConfig(
        version=draw(st.sampled_from(("0.33.0", "0.19.0"))),
        max_num_batched_tokens=2 * seats + draw(st.sampled_from((8, 60))),
        max_num_seqs=seats,
        max_model_len=64,
        block_size=block_size,
        num_gpu_blocks=num_blocks + 1,
        enable_prefix_caching=draw(st.booleans()),
        scheduling_policy=draw(st.sampled_from(("fcfs", "priority"))),
        async_scheduling=draw(st.booleans()),
    )


def outcomes(served):
    """What came out of each request, whenever it did."""
    requests = served.log.requests
    ends = zip(requests.status, requests.output_tokens.tolist(), strict=True)
    return dict(zip(requests.rid, ends, strict=True))


@given(configs(), speculations(), traffics())
def test_drafts_change_no_output_and_add_up(config, speculation, traffic):
    """Every token comes out once; blocks, budget and seats hold (`serve` checks the invariants)."""
    plain = serve(traffic, config)
    served = serve(traffic, replace(config, speculation=speculation))
    assert outcomes(served) == outcomes(plain)
    requests = served.log.requests
    assert (requests.accepted_tokens <= requests.drafted_tokens).all()
    assert (requests.drafted_tokens <= requests.verify_steps * speculation.num_tokens).all()
    for step in served.steps:
        num_drafts = step.get("drafts", [])
        assert len(num_drafts) == step["n_decode"]
        assert max(num_drafts, default=0) <= speculation.num_tokens
        num_tokens = sum(extend for _, _, extend in step["prefill"]) + sum(num_drafts)
        assert num_tokens + step["n_decode"] <= config.max_num_batched_tokens


@given(configs(), speculations(), traffics())
def test_a_replay_decides_the_same(config, speculation, traffic):
    """A new engine with the log's arrivals and times."""
    config = replace(config, speculation=speculation)
    steps = serve(traffic, config).steps
    executor = build_executor(config)
    for request in traffic.requests:
        executor.add(request.spec.rid, request.script, ignore_eos=request.spec.ignore_eos)
    pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
    engine = build_engine(config, pool=pool, executor=executor)
    arrivals = [request.spec for request in traffic.requests]
    assert replay(engine, executor, Replay(arrivals, steps, config.overlaps)) is None


@given(configs(), st.sampled_from(METHODS), st.integers(1, 4), traffics())
def test_accepted_drafts_do_not_depend_on_the_server(config, method, num_drafts, traffic):
    """A request alone on a large server accepts the same drafts, unless the budget cuts some."""
    acceptance = AcceptanceByPosition([0.6] * num_drafts)
    speculation = Speculation(method, num_drafts, acceptance)
    large = replace(
        config, max_num_batched_tokens=4096, num_gpu_blocks=4096, speculation=speculation
    )
    tight = replace(large, num_gpu_blocks=config.num_gpu_blocks, max_num_seqs=8)
    seen = []
    for each in (large, tight):
        requests = serve(traffic, each).log.requests
        if not requests.preemptions.any():
            seen.append(dict(zip(requests.rid, requests.accepted_tokens.tolist(), strict=True)))
    assert all(counts == seen[0] for counts in seen)


@given(configs(), speculations(), traffics())
def test_ranks_that_step_together_serve_the_same(config, speculation, traffic):
    """Two ranks, each with a scheduler of its own: as many tokens come out."""
    config = replace(config, speculation=speculation)
    ranks = serve(traffic, config, [(linear_latency(), linear_latency())])
    assert outcomes(ranks) == outcomes(serve(traffic, config))


@given(configs(), speculations(), traffics())
def test_equal_runs_have_equal_logs(config, speculation, traffic):
    config = replace(config, speculation=speculation)
    assert serve(traffic, config).text == serve(traffic, config, fast_forward=False).text


@given(configs(), traffics())
def test_rejecting_every_draft_yields_a_token_a_step(config, traffic):
    """Then no step gives a request more than one token."""
    speculation = Speculation("eagle", 2, AcceptanceByPosition([0.0, 0.0]))
    served = serve(traffic, replace(config, speculation=speculation))
    assert not served.log.requests.accepted_tokens.any()
    assert not (served.log.token_gaps.gap_ns == 0).any()
