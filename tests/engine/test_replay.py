"""INV-9: a log's decisions follow from its arrivals and times; a fresh engine makes them again."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim.core.batch import ScriptedExecutor
from sim.engine.page_pool import PageIds
from sim.engine.replay import RankReplay, by_step, of_one_server, replay
from sim.families import build_engine
from tests.support.random_scenarios import random_scenarios
from tests.support.serve import serve


def requests_of(scenario):
    known = {request.spec.rid: request for request in scenario.workload.arrivals()}
    for turns in scenario.workload.clients:
        known |= {turn.request.spec.rid: turn.request for turn in turns}
    return known


def rank_replay(scenario, lines):
    """A fresh engine, and the requests of these lines of a decision log."""
    config, known, executor, arrivals = (
        scenario.config,
        requests_of(scenario),
        ScriptedExecutor(),
        [],
    )
    for line in lines:
        if line["kind"] == "req" and (line["status"] != "rejected" or line["ttft_ns"] is not None):
            request = known[line["rid"]].sent_at(line["arrival_ns"])
            spec = request.spec
            executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
            arrivals.append(spec)
    pool = PageIds(config.pool_tokens // config.page_size, config.page_size)
    return RankReplay(build_engine(config, pool=pool, executor=executor), executor, arrivals)


def replay_server(scenario, config, lines, replica):
    """Replay one server of a served scenario from its decision log's lines."""
    mine = [line for line in lines if line["replica"] == replica]
    server = rank_replay(replace(scenario, config=config), mine)
    steps = [line for line in mine if line["kind"] == "step"]
    return replay([server], of_one_server(steps), overlaps=config.overlaps)


@given(random_scenarios())
def test_replay_any_log_is_decided_again(scenario):
    """All families, policies and modes, several servers, clients, host time."""
    served = serve(scenario.workload, scenario.config, scenario.latencies(), check=False)
    lines = [json.loads(line) for line in served.text.splitlines()]
    for replica in range(scenario.replicas):
        divergence = replay_server(scenario, scenario.config, lines, replica)
        assert divergence is None, f"\n{divergence}"


@given(random_scenarios())
def test_replay_changed_log_diverges_where_it_was_changed(scenario):
    """A step that says one waiting request more than there was is found."""
    served = serve(scenario.workload, scenario.config, scenario.latencies(), check=False)
    lines = [json.loads(line) for line in served.text.splitlines()]
    steps = [line for line in lines if line["kind"] == "step" and line["replica"] == 0]
    if not steps:
        return
    steps[len(steps) // 2]["queue"] += 1
    divergence = replay_server(scenario, scenario.config, lines, 0)
    assert divergence is not None
    assert divergence.where == f"step {len(steps) // 2}"
    assert divergence.fields == ("queue",)


@given(random_scenarios(), st.integers(2, 3))
def test_replay_any_log_of_groups_is_decided_again(scenario, ranks):
    """The engines of all ranks together; what one launches, the others know.

    Without launch times: where the host still launches a step that the device has ended, a log
    does not say whether a client's next request came before the decision of the same time.
    """
    scenario = replace(scenario, ranks=ranks, launch_ns=0)
    served = serve(scenario.workload, scenario.config, scenario.latencies(), check=False)
    lines = [json.loads(line) for line in served.text.splitlines()]
    for replica in range(scenario.replicas):
        mine = [line for line in lines if line["replica"] == replica]
        of_rank = [
            rank_replay(scenario, [line for line in mine if line["rank"] == rank])
            for rank in range(ranks)
        ]
        steps = by_step(line for line in mine if line["kind"] == "step")
        divergence = replay(of_rank, steps, overlaps=scenario.config.overlaps)
        assert divergence is None, f"\n{divergence}"
