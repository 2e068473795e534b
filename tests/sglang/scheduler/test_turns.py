"""Decoding by turns: few rows decode at once, and each row gets its turn."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted

CONFIG = SchedulerConfig(
    max_total_tokens=10_000, disable_overlap_schedule=True, decode_max_requests=2
)


def at_once(*outputs, prompt=10):
    """Requests 0, 1, 2, ... at time 0 with outputs of these lengths."""
    return listed(
        [scripted(str(i), (i, prompt), output=output) for i, output in enumerate(outputs)]
    )


def turns(work, config):
    """The number of rows of each decode step."""
    return [step["n_decode"] for step in serve(work, config).steps if step["mode"] == "decode"]


def test_turns_no_step_has_more_rows_than_allowed():
    """Five requests of four tokens: the first token each, then three rounds of 2 + 2 + 1."""
    assert turns(at_once(4, 4, 4, 4, 4), CONFIG) == [2, 2, 2, 2, 2, 2, 2, 1]


def test_turns_who_rested_longest_is_next():
    """Of four equal requests by pairs, the first pair finishes one step before the second."""
    served = serve(at_once(3, 3, 3, 3), CONFIG)
    finish = [served.request(str(i))["finish_ns"] for i in range(4)]
    assert finish[0] == finish[1] < finish[2] == finish[3]
    last_steps = [step["t_end_ns"] for step in served.steps][-2:]
    assert [finish[0], finish[2]] == last_steps


def test_turns_time_per_token_grows_with_the_requests():
    """The gaps between a request's tokens are as many steps as there are groups."""
    served = serve(at_once(*[5] * 8), CONFIG)
    steps_ns = [step["t_end_ns"] for step in served.steps]
    gaps = served.log.token_gaps
    assert sum(gaps.count) == 8 * 4
    shortest = min(gaps.gap_ns)
    step_ns = steps_ns[2] - steps_ns[1]
    assert shortest >= step_ns
    assert max(gaps.gap_ns) >= 4 * step_ns


def test_turns_with_room_for_all_change_nothing():
    """A limit that is never reached leaves the log as it is without."""
    work = at_once(4, 9, 2)
    unlimited = serve(work, replace(CONFIG, decode_max_requests=None))
    assert serve(work, replace(CONFIG, decode_max_requests=3)).text == unlimited.text


def test_turns_pool_too_small_retracts_and_serves_everybody():
    """Those that rest hold KV too; when it runs out some of them are put back."""
    config = replace(CONFIG, max_total_tokens=120, schedule_conservativeness=0.05)
    work = at_once(*[30] * 6)
    served = serve(work, config)
    assert served.log.requests.status == ["finished"] * 6
    assert int(served.log.requests.retractions.sum()) > 0
    assert served.log.requests.output_tokens.tolist() == [30] * 6


@given(st.lists(st.integers(1, 25), min_size=1, max_size=12), st.integers(1, 5))
def test_turns_any_outputs_are_generated_in_full(outputs, most):
    """Each request gets all its tokens, and no step has more rows than `most` or none."""
    served = serve(at_once(*outputs), replace(CONFIG, decode_max_requests=most))
    rows = [step["n_decode"] for step in served.steps if step["mode"] == "decode"]
    assert served.log.requests.output_tokens.tolist() == outputs
    assert sum(rows) == sum(outputs) - len(outputs)
    assert all(row <= most for row in rows)
