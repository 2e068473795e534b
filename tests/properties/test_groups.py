"""Groups of ranks that step together: the invariants hold, however time passes."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_scenarios import random_scenarios
from tests.support.serve import serve

METHODS = st.sampled_from(("round_robin", "total_requests", "total_tokens", "total_tokens"))


@st.composite
def groups(draw):
    """Up to three replicas of two to four ranks, of any family; SGLang's with any method."""
    scenario = draw(random_scenarios())
    if scenario.config.family == "sglang":
        config = replace(scenario.config, load_balance_method=draw(METHODS))
        scenario = replace(scenario, config=config)
    return replace(scenario, ranks=draw(st.integers(2, 4)))


def run(scenario, **how):
    return serve(
        scenario.workload,
        scenario.config,
        scenario.latencies(),
        host=scenario.host,
        num_front_ends=scenario.front_ends,
        **how,
    )


def outcome(served):
    requests, gaps = served.log.requests, served.log.token_gaps
    columns = {name: list(getattr(requests, name)) for name in requests.__dataclass_fields__}
    return served.text, columns, gaps.gap_ns.tolist(), gaps.count.tolist(), served.summary


@given(groups())
def test_invariants_any_group_hold_on_every_rank_at_every_step(scenario):
    """INV-1 to 4, 8, 10, 11, 15: `check` finds nothing, and every request comes to an end.

    INV-12 and INV-6: fast-forward leaves the same log, and so does the same run again.
    """
    served = run(scenario, fast_forward=False, check=True)
    assert served.num_ended == scenario.workload.num_requests
    check_timeline(served, scenario)
    log = outcome(run(scenario, check=False))
    assert log == outcome(served)
    assert log == outcome(run(scenario, check=False))


def check_timeline(served, scenario):
    """INV-3: lines of one step have the same times on all ranks; steps follow one another."""
    for replica in range(scenario.replicas):
        times = {}
        for line in served.steps:
            if line["replica"] == replica:
                assert 0 <= line["rank"] < scenario.ranks
                step = times.setdefault(line["step"], [])
                step.append(tuple(line[key] for key in ("t_decided_ns", "t_start_ns", "t_end_ns")))
        assert all(len(set(lines)) == 1 for lines in times.values())
        assert all(len(lines) <= scenario.ranks for lines in times.values())
        in_order = [times[number][0] for number in sorted(times)]
        for before, after in itertools.pairwise(in_order):
            assert before[1] < before[2] <= after[1]
