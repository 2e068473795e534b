"""Rows of a sweep that are the same are said to be, with the reason."""

import pytest

from sim.report.sweep_tables import same_rows
from sim.sweep.results import PointResult, SweepResults

POLICY = "scheduler.schedule_policy"
RUNNING, CHUNK = "scheduler.max_running_requests", "scheduler.enable_mixed_chunk"
QUIET = {"max_queue_length": 0, "max_decode_rows": 7, "cache_hit_rate_pct": 20.0}
BUSY = {"max_queue_length": 9, "max_decode_rows": 30, "cache_hit_rate_pct": 20.0}


def sweep(*points, scenario=None):
    """Each point is its values, its mean TTFT, and the rest of its summary."""
    results = [
        PointResult(values, "", "done", {"mean_ttft_ms": ttft_ms, **summary})
        for values, ttft_ms, summary in points
    ]
    return SweepResults.of("study", scenario or {}, list(points[0][0]), results)


def two(key, values, summary, **more):
    return sweep(*(({key: value}, 5.0, summary) for value in values), **more)


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        (two(POLICY, ["fcfs", "lpm"], QUIET), "nobody waited, so policies cannot differ."),
        (two(POLICY, ["fcfs", "lpm"], BUSY),
         "schedule_policy made no difference to these figures."),
        (two(POLICY, ["fcfs", "lpm"], BUSY | {"cache_hit_rate_pct": 0.0}),
         "no prompt begins like another, so all of these policies serve by arrival."),
        (two(RUNNING, [64, 128], BUSY),
         "at most 30 requests ran at once, fewer than every max_running_requests."),
        (two(RUNNING, [30, 128], BUSY),
         "max_running_requests made no difference to these figures."),
        (two("router.kind", ["round-robin", "least-loaded"], BUSY),
         "there is one server, so routers cannot differ."),
        (two("router.kind", ["round-robin", "least-loaded"], BUSY, scenario={"replicas": 2}),
         "kind made no difference to these figures."),
    ],
)  # fmt: skip
def test_same_rows_have_a_reason(results, sentence):
    assert same_rows(results) == [f"Rows 1 and 2 are the same: {sentence}"]


def test_groups_with_the_same_reason_share_a_sentence():
    """Every value of a key against the other, at two loads."""
    points = [
        ({"rate": rate, POLICY: policy, CHUNK: chunk}, rate, QUIET)
        for rate in (1.0, 2.0)
        for policy in ("fcfs", "lpm")
        for chunk in (False, True)
    ]
    [sentence] = same_rows(sweep(*points))
    assert sentence == (
        "Rows 1, 2, 3 and 4; 5, 6, 7 and 8 are each the same: nobody waited, so policies cannot"
        " differ; enable_mixed_chunk made no difference to these figures."
    )


def test_rows_that_differ_are_not_mentioned():
    """Nor is a point that failed."""
    results = sweep(({POLICY: "fcfs"}, 5.0, QUIET), ({POLICY: "lpm"}, 5.1, QUIET))
    assert same_rows(results) == []
    failed = PointResult({POLICY: "fcfs"}, "", "fault", None, "broken")
    both = [failed, failed._replace(values={POLICY: "lpm"})]
    assert same_rows(SweepResults.of("study", {}, [POLICY], both)) == []
