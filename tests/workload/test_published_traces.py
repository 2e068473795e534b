"""The published traces have their known statistics; skipped if they are not there."""

from typing import NamedTuple

import pytest
from pydantic import TypeAdapter

from sim.workload.config import WorkloadConfig
from sim.workload.kinds.build import build_workload
from sim.workload.kinds.stats import workload_stats


class Known(NamedTuple):
    """A trace's statistics: rounded lengths are mean, median and 99th percentile."""

    format: str
    num_requests: int
    span_s: int
    rate_rps: float
    inputs: tuple[int, int, int]
    outputs: tuple[int, int, int]
    block_hit_pct: float
    token_hit_pct: float


KNOWN = {
    "mooncake/conversation_trace.first-40min.jsonl.gz": Known(
        *("mooncake", 7851, 2397, 3.28, (12_428, 7_284, 89_868), (347, 356, 1_168), 35.09, 35.8)
    ),
    "mooncake/synthetic_trace.jsonl.gz": Known(
        *("mooncake", 3993, 1022, 3.91, (15_326, 11_587, 66_456), (149, 69, 768), 63.96, 65.1)
    ),
    "azure/AzureLLMInferenceTrace_conv.csv.gz": Known(
        *("azure", 19_366, 3502, 5.53, (1_155, 1_020, 4_142), (211, 129, 601), 0, 0)
    ),
}


def read(shared_dir, name):
    base_dir = shared_dir / "traces"
    if not (base_dir / name).is_file():
        pytest.skip(f"no trace at {base_dir / name}")
    section = {"kind": "trace", "format": KNOWN[name].format, "path": name}
    config = TypeAdapter(WorkloadConfig).validate_python(section)
    return build_workload(config, seed=0, base_dir=base_dir)


@pytest.mark.parametrize("name", KNOWN)
def test_stats_of_published_trace_agree_with_what_is_known(shared_dir, name):
    """Rows, rates, lengths, and the hit rate of an endless cache in blocks and in tokens."""
    known = KNOWN[name]
    stats = workload_stats(read(shared_dir, name))
    assert stats.num_requests == known.num_requests
    assert stats.span_s == pytest.approx(known.span_s, abs=0.5)
    assert stats.rate_rps == pytest.approx(known.rate_rps, abs=0.005)
    for lengths, expected in (
        (stats.input_tokens, known.inputs),
        (stats.output_tokens, known.outputs),
    ):
        assert (lengths.mean, lengths.p50, lengths.p99) == pytest.approx(expected, abs=0.6)
    assert stats.block_hit_pct == pytest.approx(known.block_hit_pct, abs=0.005)
    assert stats.token_hit_pct == pytest.approx(known.token_hit_pct, abs=0.05)


def test_stats_of_azure_trace_know_its_gaps_and_caps(shared_dir):
    """Gap CV 1.09, outputs up to 1000, inputs up to 14,050."""
    stats = workload_stats(read(shared_dir, "azure/AzureLLMInferenceTrace_conv.csv.gz"))
    assert stats.gap_cv == pytest.approx(1.09, abs=0.005)
    assert (stats.input_tokens.max, stats.output_tokens.max) == (14_050, 1000)


def test_arrivals_of_conversation_trace_come_in_ticks_and_file_order(shared_dir):
    """About ten requests a tick of three seconds, named by row."""
    requests = list(read(shared_dir, "mooncake/conversation_trace.first-40min.jsonl.gz").arrivals())
    assert [int(request.spec.rid) for request in requests] == list(range(7851))
    num_ticks = len({request.spec.arrival_ns for request in requests})
    assert 8 < 7851 / num_ticks < 12
