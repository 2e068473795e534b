"""The registry has all metrics of a summary, and no others."""

from dataclasses import replace

import pytest

from sim.metrics.power import ServerPower
from sim.metrics.registry import GROUP_METRICS, POOL_METRICS, RUN_METRICS, MetricName, metric_names
from sim.metrics.summary import summarise
from sim.runlog.servers import FleetEvent, FleetLog, ReplicaState


@pytest.fixture(scope="module")
def summary(pools_log):
    log = pools_log()
    fleet = FleetLog([FleetEvent(0, 0, ReplicaState.UP)], [1])
    meta = {**log.meta, "host_cache_tokens": 1, "num_speculative_tokens": 3}
    meta["fleet"] = fleet.to_meta()
    meta["power"] = [ServerPower(100, 700, {"steps": 2})._asdict() for _ in log.pools]
    return summarise(replace(log, meta=meta, predicted_tokens=log.requests.cached_tokens))


def test_metric_names_are_the_numbers_of_a_summary(summary):
    """Every number of a real run has a name, whatever an empty run leaves undefined."""
    numbers = {
        key
        for key, value in summary.items()
        if isinstance(value, bool | int | float) or value is None
    }
    top = {name for name in metric_names() if "." not in name}
    assert top == numbers - {"wall_seconds"}
    assert {f"hot.{key}" for key in summary["hot"]} <= set(metric_names())
    of_pool = {f"pools.east.{key}" for key in summary["pools"]["east"]}
    facts = {"pools.east.role", "pools.east.replicas", "pools.east.ranks"}
    assert of_pool - facts == {name for name in metric_names((), ("east",)) if "east" in name}


def test_metric_names_have_values_in_a_summary(summary):
    """Looked up by name, dots included; what is undefined or unknown has none."""
    nested = {**summary, "tenants": {"a.b": {"p99_ttft_ms": 7}}}
    assert MetricName.of("tenants.a.b.p99_ttft_ms").value(nested) == 7
    assert MetricName.of("queue_time.max_ms").value(summary) == summary["max_queue_time_ms"]
    assert MetricName.of("hot.mean_ttft_ms").value(summary) == summary["hot"]["mean_ttft_ms"]
    assert MetricName.of("pools.east.busy_pct").value(summary) > 0
    assert MetricName.of("saturated").value({"saturated": True}) == 1.0
    assert MetricName.of("tenants.nobody.p99_ttft_ms").value(nested) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p99_ttft_ms", ("all requests", "p99 TTFT", "ms")),
        ("cold.mean_e2e_latency_ms", ("cold", "mean end-to-end latency", "ms")),
        ("tenants.a.b.p99_ttft_ms", ("a.b", "p99 TTFT", "ms")),
        ("pools.east.busy_pct", ("east", "busy", "% of the time")),
        ("mean_transfer_ms", ("all requests", "mean transfer", "ms")),
        ("queue_time.max_ms", ("all requests", "max queue time", "ms")),
        ("request_goodput", ("all requests", "goodput", "requests/s")),
        ("something_new_ms", ("all requests", "something new", "ms")),
    ],
)
def test_metric_names_in_words(name, words):
    """What axes and legends say."""
    metric = MetricName.of(name)
    assert (metric.group_label, metric.label, metric.unit) == words


def test_registry_has_the_metrics_of_a_summary_in_its_order(summary):
    """Run and groups; every one is defined in one sentence."""
    numbers = [
        key
        for key, value in summary.items()
        if isinstance(value, bool | int | float) or value is None
    ]
    assert [*RUN_METRICS] == [name for name in numbers if name != "wall_seconds"]
    assert [*GROUP_METRICS] == [*summary["hot"]]
    facts = ["role", "replicas", "ranks"]
    assert [*facts, *POOL_METRICS, *GROUP_METRICS] == [*summary["pools"]["east"]]
    for metric in (*RUN_METRICS.values(), *GROUP_METRICS.values(), *POOL_METRICS.values()):
        assert metric.definition.endswith("."), metric
        assert ". " not in metric.definition, metric


@pytest.mark.parametrize(
    ("name", "heading", "better"),
    [
        ("p99_ttft_ms", "TTFT p99 ms", -1),
        ("request_throughput", "requests/s", 1),
        ("total_throughput", "all tokens/s", 1),
        ("slo_attainment", "SLO met %", 1),
        ("completed", "finished", 1),
        ("retractions", "retractions", -1),
        ("request_rate", "offered load requests/s", 0),
        ("something_new_ms", "something new ms", -1),
    ],
)
def test_registry_headings_and_directions(name, heading, better):
    """What tables call a metric, and which way is better."""
    metric = MetricName.of(name).metric
    assert (metric.table_heading_with_unit, metric.better) == (heading, better)
