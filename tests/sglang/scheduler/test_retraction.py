"""Which rows are retracted when the next decode step does not fit, and come back (rule 11)."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.decode import retract
from sim.testing.contracts.policies import waiting_request
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted


def one_token_each(kv):
    """The new pages that rows need for one more token each."""
    return lambda rows: sum(row.seq_len % kv.page_size == 0 for row in rows)


def retracted(make_pass, rows, *, spare=0, **settings):
    """Retract from rows `(rid, prompt_len, num_generated, priority)` that fill the pool.

    Returns:
        Names retracted, aborted and kept, each in order, and how many remained at each release.
    """
    running = [
        (waiting_request(rid, (i, prompt_len), priority=priority), num_generated)
        for i, (rid, prompt_len, num_generated, priority) in enumerate(rows)
    ]
    held = sum(prompt_len + num_generated for _, prompt_len, num_generated, _ in rows)
    one = make_pass(max_total_tokens=held + spare, running=running, **settings)
    remaining = []

    def release(request, num_remaining):
        one.kv.release(request.kv, request.seq_len)
        remaining.append(num_remaining)

    gone = retract(one.config, one.kv, one.running, release, one_token_each(one.kv))
    names = ["".join(r.rid for r in rs) for rs in (*gone, one.running.requests)]
    return (*names, remaining)


def test_retract_takes_fewest_generated_then_longest_prompt_then_last(make_pass):
    """One is enough here; what stays is in order of preference."""
    rows = [("a", 10, 5, 0), ("b", 10, 3, 0), ("c", 20, 3, 0), ("d", 10, 7, 0)]
    assert retracted(make_pass, rows) == ("c", "", "dab", [3])
    rows = [("a", 10, 5, 0), ("b", 20, 3, 0), ("c", 20, 3, 0), ("d", 10, 7, 0)]
    assert retracted(make_pass, rows) == ("c", "", "dab", [3])


def test_retract_takes_one_even_if_the_step_would_fit(make_pass):
    """Whoever calls has found that it does not."""
    rows = [("a", 10, 5, 0), ("b", 10, 3, 0)]
    assert retracted(make_pass, rows, spare=50) == ("b", "", "a", [1])


def test_retract_goes_on_until_the_step_fits(make_pass):
    """Rows of one token give little back: three go until two pages are enough for two rows."""
    rows = [("a", 1, 5, 0), ("b", 1, 0, 0), ("c", 1, 1, 0), ("d", 1, 4, 0)]
    assert retracted(make_pass, rows) == ("bc", "", "ad", [3, 2])


def test_retract_priority_policy_takes_the_least_important(make_pass):
    """By priority first, in the configured direction, then as usual."""
    rows = [("a", 10, 5, 1), ("b", 10, 3, 2), ("c", 10, 3, 0), ("d", 10, 7, 0)]
    by_priority = {"retraction_policy": "priority"}
    assert retracted(make_pass, rows, **by_priority)[0] == "c"
    low_first = {"schedule_low_priority_values_first": True}
    assert retracted(make_pass, rows, **by_priority, **low_first)[0] == "b"


def test_retract_last_row_that_cannot_fit_is_aborted(make_pass):
    """Retracting it would bring it back to the same end."""
    assert retracted(make_pass, [("a", 10, 5, 0)]) == ("", "a", "", [0])


def test_retract_last_row_that_fits_stays(make_pass):
    """Only the last of all may be given up."""
    rows = [("a", 10, 5, 0), ("b", 10, 3, 0)]
    assert retracted(make_pass, rows) == ("b", "", "a", [1])


def test_retract_counts_pages_not_rows(make_pass):
    """Of rows in the middle of their pages none needs a new one: a page given back is plenty."""
    rows = [("a", 4, 4, 0), ("b", 4, 3, 0), ("c", 8, 0, 0)]
    running = [(waiting_request(rid, (i, p)), g) for i, (rid, p, g, _) in enumerate(rows)]
    one = make_pass(max_total_tokens=24, page_size=4, running=running)
    gone, _ = retract(
        one.config,
        one.kv,
        one.running,
        lambda r, n: one.kv.release(r.kv, r.seq_len),
        one_token_each(one.kv),
    )
    assert [r.rid for r in gone] == ["c"]


# ---- in a run ----------------------------------------------------------------------------------

# Admission reserves almost nothing, so that rows outgrow the pool.
_RECKLESS = SchedulerConfig(
    max_total_tokens=100,
    clip_max_new_tokens=4,
    schedule_conservativeness=0.05,
    disable_overlap_schedule=True,
)


@pytest.fixture(scope="module")
def crowded():
    """Two requests that together outgrow the pool, and a third that arrives in between."""
    return serve(
        listed(
            [
                scripted("a", (1, 30), output=40),
                scripted("b", (2, 40), output=40),
                scripted("c", (3, 45), output=5, arrival_ns=50_000_000),
            ]
        ),
        _RECKLESS,
    )


def test_retraction_in_a_run_happens_when_memory_is_out(crowded):
    """15 steps of two tokens fill the 30 that were free; then the longer prompt goes."""
    steps = [step for step in crowded.steps if step["retracted"]]
    assert steps[0]["step"] == 16
    assert steps[0]["retracted"] == ["b"]
    assert crowded.steps[15]["free"] == 0


def test_retraction_in_a_run_sends_the_row_to_the_tail(crowded):
    """The one that waited already goes first."""
    rows = [row for step in crowded.steps for row in step["prefill"]]
    assert [rid for rid, _, _ in rows][:4] == ["a", "b", "c", "b"]


def test_retraction_in_a_run_keeps_the_outputs(crowded):
    """The second prefill covers what was generated; the output has its length all the same."""
    second = [row for step in crowded.steps for row in step["prefill"] if row[0] == "b"][1]
    assert second[1] + second[2] == 40 + 16
    assert crowded.request("b")["output_tokens"] == 40
    assert crowded.request("b")["retractions"] == 1
    assert crowded.request("b")["cached_tokens"] == 0


def test_retraction_in_a_run_sets_the_ratio_from_who_is_left(crowded):
    """One row with 16 of 40 tokens generated."""
    step = next(step for step in crowded.steps if step["retracted"])
    assert step["ratio"] == (16 + 20) / (40 + 1)
    assert step["full"] is False


def test_slots_limit_bounds_requests_at_any_time():
    """At most `max_running_requests` requests hold KV, chunked ones included."""
    requests = [scripted(f"r{i}", (i, 20 + i), output=3 + i) for i in range(12)]
    config = SchedulerConfig(max_running_requests=3, chunked_prefill_size=16)
    served = serve(listed(requests), config)
    assert served.log.steps.running.max() == 3
    assert set(served.log.requests.status) == {"finished"}


def test_retraction_in_a_run_evicts_for_20_tokens_a_remaining_row(crowded):
    """The 15 tokens that came back are not enough for one row: b's cached prompt goes too."""
    step = next(step for step in crowded.steps if step["retracted"])
    assert step["free"] == 15 + 40 - 1
    assert step["evictable"] == 0
