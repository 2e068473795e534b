"""When no pass is tried because the last one found the batch full (rule 7)."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted


def steps_of(*requests, **settings):
    config = SchedulerConfig(disable_overlap_schedule=True, **settings)
    return serve(listed(requests), config).steps


def step_of(steps, rid):
    """The number of a request's first prefill step."""
    return next(s["step"] for s in steps if rid in [row[0] for row in s["prefill"]])


# Room for a and b. c lacks some 10 tokens in the pass that charges b's whole output, and would
# fit a pass later, when b reserves only its share.
_REQUESTS = (
    scripted("a", (1, 20), output=60),
    scripted("b", (2, 20), output=60, arrival_ns=20_000_000),
    scripted("c", (3, 20), output=60, arrival_ns=20_000_000),
)


@pytest.mark.parametrize("mixed", [False, True])
def test_full_flag_after_no_token_holds_until_somebody_leaves_unless_mixed(mixed):
    """A mixed batch replaces the running one, and with it the flag: c is tried at once."""
    steps = steps_of(*_REQUESTS, max_total_tokens=215, enable_mixed_chunk=mixed)
    joined = step_of(steps, "b")
    assert steps[joined]["full"]
    between = steps[joined + 1 : step_of(steps, "c")]
    assert all(step["full"] and step["n_decode"] == 2 for step in between)
    assert len(between) == 0 if mixed else len(between) > 10


def test_full_flag_set_with_an_empty_batch_is_lost():
    """The first pass runs out of memory at c, the second takes it (reference case a)."""
    requests = [scripted(rid, (i, 20), output=60) for i, rid in enumerate("abc")]
    steps = steps_of(*requests, max_total_tokens=235)
    assert [row[0] for row in steps[0]["prefill"]] == ["a", "b"]
    assert [row[0] for row in steps[1]["prefill"]] == ["c"]


def test_full_flag_without_free_slots_is_cleared_when_one_leaves():
    """The third request starts in the very step after the first has ended."""
    requests = [scripted(rid, (i, 20), output=5 + 9 * i) for i, rid in enumerate("abc")]
    steps = steps_of(*requests, max_running_requests=2)
    assert step_of(steps, "c") == 5
    assert [step["full"] for step in steps[1:5]] == [True] * 4
