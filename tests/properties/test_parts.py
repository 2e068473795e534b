"""A run of replicas that cannot influence one another is the same, however it is cut into parts."""

from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.des.deployment import Deployment
from sim.des.part import simulate_part
from sim.des.routers.router import RandomChoice, RoundRobin, SessionSticky
from sim.des.run import RunOptions, simulate
from sim.runlog.columns import joined
from sim.runlog.decisions import DecisionLog, StepLines
from sim.workload.workload import ScriptedRequest, listed
from tests.support.random_scenarios import random_scenarios, with_stages

ROUTERS = {
    "round-robin": RoundRobin,
    "random": lambda: RandomChoice(random=np.random.default_rng(7)),
    "session-sticky": lambda: SessionSticky(
        by_tenant=False, max_idle_ns=10_000_000, spill=None, random=np.random.default_rng(7)
    ),
}


def with_spec(request, field, value):
    """A request that asks for something else."""
    spec = request.spec.copy()
    setattr(spec, field, value)
    return ScriptedRequest(spec, request.script)


@st.composite
def scenarios(draw):
    """Two to five replicas of any family: single servers, groups of ranks, or pipelines.

    All requests of a random scenario arrive at given times, many of them at the same time. So
    replicas often have the same work at the same time.
    """
    scenario = draw(random_scenarios())
    requests = [
        *scenario.workload.arrivals(),
        *(t.request for c in scenario.workload.clients for t in c),
    ]
    requests = [
        with_spec(one, "session", f"s{number % 4}" if number % 3 else "")
        for number, one in enumerate(sorted(requests, key=lambda one: one.spec.arrival_ns))
    ]
    twins = [with_spec(one, "rid", f"{one.spec.rid}-twin") for one in requests]
    both = [one for pair in zip(requests, twins, strict=True) for one in pair]
    scenario = replace(scenario, workload=listed(both), replicas=draw(st.integers(2, 5)))
    match draw(st.sampled_from(("servers", "groups", "pipelines"))):
        case "groups":
            return replace(scenario, ranks=draw(st.integers(2, 3)))
        case "pipelines":
            config = with_stages(scenario.config, draw(st.integers(2, 3)))
            return replace(scenario, config=config)
    return scenario


def content(log, path):
    columns = [
        (field.name, list(getattr(table, field.name)))
        for table in (log.requests, log.steps, log.token_gaps)
        for field in fields(table)
    ]
    return columns, list(log.gap_at_ns), log.meta, path.read_text(encoding="utf-8")


@given(
    scenario=scenarios(),
    kind=st.sampled_from(sorted(ROUTERS)),
    num_parts=st.integers(1, 5),
    fast_forward=st.booleans(),
)
def test_parts_any_run_joined_is_the_run_of_one_process(scenario, kind, num_parts, fast_forward):
    """Every column, every token gap and every line of the decision log, in the same order."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.jsonl"
        options = RunOptions(
            fast_forward=fast_forward, timed_gaps=True, decisions=path, meta={"name": "any"}
        )

        def deployment():
            return Deployment.of_one_kind(
                scenario.config,
                scenario.latencies(),
                router=ROUTERS[kind](),
                host=scenario.host,
                num_front_ends=scenario.front_ends,
            )

        whole = simulate(scenario.workload, deployment(), options)
        expected = content(whole, path)
        decisions = DecisionLog(path, scenario.replicas, scenario.ranks)
        parts = []
        for number in range(min(num_parts, scenario.replicas)):
            lines = StepLines(scenario.replicas, scenario.ranks)
            replicas = range(number, scenario.replicas, min(num_parts, scenario.replicas))
            part = simulate_part(scenario.workload, deployment(), replicas, options, lines)
            for server in part.gaps:
                decisions.steps.add(server, lines.packed(server))
            lines.discard()
            parts.append(part)
        log = joined(parts, scenario.ranks, deployment().meta(options.meta))
        decisions.close(log)
        assert content(log, path) == expected
