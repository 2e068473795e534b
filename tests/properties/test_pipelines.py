"""Pipelines: the invariants hold, however many steps are in flight."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from sim.engine.page_pool import PageCounts
from sim.engine.replay import RankReplay, by_step, replay
from sim.families import build_engine, build_executor
from sim.vllm.config import VllmConfig
from sim.workload.workload import every_request
from tests.support.random_drafts import speculations
from tests.support.random_scenarios import random_scenarios, with_stages
from tests.support.serve import serve


@st.composite
def pipelines(draw):
    """Up to three replicas with two to four stages and up to three ranks, of any family.

    Some servers of vLLM's newest version draft.
    """
    scenario = draw(random_scenarios())
    config = with_stages(scenario.config, draw(st.integers(2, 4)))
    if isinstance(config, VllmConfig) and config.rules.async_lookup and draw(st.booleans()):
        drafts = draw(speculations(("ngram", "eagle", "mtp")))
        config = replace(
            config, speculation=drafts, async_scheduling=True, long_prefill_token_threshold=0
        )
    return replace(scenario, config=config, ranks=draw(st.sampled_from([1, 1, 2, 3])))


def served(scenario, **how):
    return serve(
        scenario.workload, scenario.config, scenario.latencies(), host=scenario.host, **how
    )


@given(pipelines())
def test_invariants_any_pipeline_hold_at_every_step(scenario):
    """INV-1, 2, 4, 6, 8, 10, 11: `check` finds nothing, all requests end, twice in the same way.

    Every token is a gap or a first token.
    """
    once = served(scenario, check=True)
    requests = once.log.requests
    assert once.num_ended == scenario.workload.num_requests
    num_first = int((requests.first_token_ns >= 0).sum())
    num_gaps = int(once.log.token_gaps.count.sum())
    assert num_first + num_gaps == int(requests.output_tokens.sum())
    assert once.text == served(scenario, check=False, fast_forward=False).text


@given(pipelines())
def test_time_any_pipeline_steps_leave_in_order_and_no_more_fly_than_may(scenario):
    """INV-3: steps begin and end in the order of their decisions."""
    steps = served(scenario, check=False).steps
    for replica in range(scenario.replicas):
        mine = [line for line in steps if line["replica"] == replica]
        lines = list({line["step"]: line for line in mine}.values())  # one of each rank
        for name in ("t_decided_ns", "t_start_ns", "t_end_ns"):
            times = [line[name] for line in lines]
            assert times == sorted(times)
        # Under async scheduling one step more than stages.
        most = scenario.config.micro_batches + scenario.config.overlaps
        for oldest, newest in zip(lines, lines[most:], strict=False):
            assert oldest["t_end_ns"] <= newest["t_decided_ns"]


def replay_pipeline(ranks, steps):
    return replay(ranks, steps, overlaps=True)


@given(pipelines())
def test_replay_any_pipeline_finds_no_difference(scenario):
    """A fresh engine decides the same steps from the log's arrivals and times."""
    # Decisions of no launch are not in a log, and one of them may have waited for a copy to end.
    host_cache = getattr(scenario.config, "host_cache", None)
    assume(host_cache is None or not host_cache.copy_ns_per_token)
    scenario = replace(scenario, host=None)
    run, config = served(scenario, check=False), scenario.config
    requests = {request.spec.rid: request for request in every_request(scenario.workload)}
    rows = list(zip(run.log.requests.rid, run.log.requests.replica, strict=True))
    for replica in range(scenario.replicas):
        ranks = []
        for rank in range(scenario.ranks):
            executor, arrivals = build_executor(config), []
            mine = replica * scenario.ranks + rank
            for row in [row for row, (_, number) in enumerate(rows) if number == mine]:
                was_launched = run.log.requests.scheduled_ns[row] >= 0
                if run.log.requests.status[row] == "rejected" and not was_launched:
                    continue
                request = requests[rows[row][0]].sent_at(int(run.log.requests.arrival_ns[row]))
                spec = request.spec
                executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
                arrivals.append(spec)
            pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
            engine = build_engine(config, pool=pool, executor=executor)
            in_order = sorted(arrivals, key=lambda spec: spec.arrival_ns)
            ranks.append(RankReplay(engine, executor, in_order))
        steps = by_step(line for line in run.steps if line["replica"] == replica)
        assert replay_pipeline(ranks, steps) is None
