"""Prompts A, B, A, B, A, B: the order in which they are served."""

import pytest

from sim.scenario.build import build
from tests.support.serve import serve


def order_of_service(plan, **settings):
    """Request ids by the step and the row in which they are first computed."""
    for point in plan.points:
        if {key.rpartition(".")[2]: value for key, value in point.settings.items()} == settings:
            built = build(plan.vary(point.settings))
            steps = serve(built.workload, built.scheduler, built.latencies).steps
            return list(dict.fromkeys(row[0] for step in steps for row in step["prefill"]))
    raise LookupError(settings)


@pytest.mark.parametrize("no_overlap", [False, True])
def test_ab_clusters_lpm_runs_one_cluster_then_the_other(plan_of, no_overlap):
    """Those that share with what is cached, or is about to be, go first."""
    plan = plan_of("ab-clusters")
    settings = {"schedule_policy": "lpm", "disable_overlap_schedule": no_overlap}
    assert order_of_service(plan, **settings) == ["A0", "A1", "A2", "B0", "B1", "B2"]


@pytest.mark.parametrize("no_overlap", [False, True])
def test_ab_clusters_fcfs_alternates(plan_of, no_overlap):
    """In order of arrival."""
    plan = plan_of("ab-clusters")
    settings = {"schedule_policy": "fcfs", "disable_overlap_schedule": no_overlap}
    assert order_of_service(plan, **settings) == ["A0", "B0", "A1", "B1", "A2", "B2"]


def test_ab_clusters_lpm_finds_each_prefix_twice(study):
    """7,000 of 10,800 tokens; FCFS starts a second B before the first has left its prefix."""
    results = study("ab-clusters")
    assert results.mean("total_cached_tokens", schedule_policy="lpm") == 2 * 2_000 + 2 * 1_500
    assert results.mean("total_cached_tokens", schedule_policy="fcfs") == 2 * 2_000 + 1_500
    for metric in ("mean_ttft_ms", "duration"):
        assert results.mean(metric, schedule_policy="lpm") < results.mean(
            metric, schedule_policy="fcfs"
        )
