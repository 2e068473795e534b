"""How much KV some traffic has: never less than what its requests compute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.scenario.load import load_scenario_text
from sim.sweep.capacity.traffic_kv import traffic_kv
from sim.sweep.plan import Plan
from sim.workload.kinds.build import build_workload
from sim.workload.reuse.blocks import in_time_order, num_generated
from sim.workload.traces.read import read_trace
from tests.sweep.conftest import BASE

SESSIONS = """\
  kind: sessions
  sessions: {sessions}
  arrivals: {{kind: constant, rate_rps: 1}}
  turns: {{kind: uniform, min: 1, max: 3}}
  user_tokens: {{kind: uniform, min: 1, max: 40}}
  output_tokens: {{kind: uniform, min: 1, max: 9}}
  think_s: {{kind: constant, value: 1}}
  system_prompts: {{count: 2, tokens: {system}}}
"""


def num_different(workload):
    """Beginnings of prompts with their answers, up to every token, each counted once."""
    seen = set()
    for request in in_time_order(workload):
        answer = request.script.token_ids(num_generated(request))
        ids = [*request.spec.prompt.token_ids().tolist(), *answer.tolist()]
        seen.update(hash(tuple(ids[: end + 1])) for end in range(len(ids) - 1))
    return len(seen)


@given(sessions=st.integers(1, 6), system=st.integers(1, 50), seeds=st.sets(st.integers(0, 9),
       min_size=1, max_size=2))  # fmt: skip
def test_bound_is_above_all_tokens_that_are_computed_with_every_seed(sessions, system, seeds):
    """And by no more than two blocks for each request: where it parts from others, and its end."""
    head, _, rest = BASE.partition("workload:\n")
    section = SESSIONS.format(sessions=sessions, system=system)
    text = f"{head}workload:\n{section}{rest[rest.index('scheduler:') :]}"
    loaded = load_scenario_text(text)
    found = traffic_kv(Plan(loaded, (), (), "plan"), {}, sorted(seeds), read_trace)
    counts, requests = [], []
    for seed in seeds:
        built = build_workload(loaded.scenario.workload, seed=seed, base_dir=loaded.base_dir)
        counts.append(num_different(built))
        requests.append(sum(1 for _ in in_time_order(built)))
    assert max(counts) <= found.num_tokens <= max(counts) + 32 * max(requests)


def test_traffic_that_is_scaled_has_as_much_more(base_text):
    """A hundred times the requests of the base scenario, which share nothing."""
    plan = Plan(load_scenario_text(base_text), (), (), "plan")
    once = traffic_kv(plan, {}, [1], read_trace).num_tokens
    more = traffic_kv(plan, {"workload.num_requests": 300}, [1], read_trace).num_tokens
    assert more == pytest.approx(100 * once)
    assert once >= 3 * 103
