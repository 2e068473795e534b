"""Reads the outcome of a run, from the files of our simulator or of Dynamo's replay."""

import csv
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Arrival in ms, prompt tokens, output tokens. Both simulators write them for each request, but no
# request ids.
Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class BenchOutcome:
    """The outcome of a run.

    Attributes:
        hit_rate: cached prompt tokens at first admission over prompt tokens.
        mean_ttft_s, p99_ttft_s, mean_tpot_ms: over all requests.
        makespan_s: time of the last token.
        num_finished: finished requests.
    """

    hit_rate: float
    mean_ttft_s: float
    p99_ttft_s: float
    mean_tpot_ms: float
    makespan_s: float
    num_finished: int


def our_outcome(summary: Path) -> BenchOutcome:
    """The outcome from the output of `simulate run --format json`."""
    found = json.loads(summary.read_text(encoding="utf-8"))
    return BenchOutcome(
        hit_rate=found["cache_hit_rate_pct"] / 100,
        mean_ttft_s=found["mean_ttft_ms"] / 1e3,
        p99_ttft_s=found["p99_ttft_ms"] / 1e3,
        mean_tpot_ms=found["mean_tpot_ms"],
        makespan_s=found["duration"],
        num_finished=found["completed"],
    )


def dynamo_outcome(report: Path) -> BenchOutcome:
    """The outcome from a file that Dynamo's `--report-json` wrote."""
    found = json.loads(report.read_text(encoding="utf-8"))
    return BenchOutcome(
        hit_rate=found["first_admission_prefix_cache_reused_ratio"],
        mean_ttft_s=found["mean_ttft_ms"] / 1e3,
        p99_ttft_s=found["p99_ttft_ms"] / 1e3,
        mean_tpot_ms=found["mean_tpot_ms"],
        makespan_s=found["duration_ms"] / 1e3,
        num_finished=found["completed_requests"],
    )


def our_ttfts_ms(requests: Path) -> dict[Key, float]:
    """Time to first token of each request, from `simulate run --requests` as CSV."""
    with requests.open(encoding="utf-8", newline="") as lines:
        return _unique(
            (
                (
                    round(float(row["arrival_s"]) * 1e3),
                    int(row["prompt_tokens"]),
                    int(row["output_tokens"]),
                ),
                float(row["ttft_ms"]),
            )
            for row in csv.DictReader(lines)
        )


def dynamo_ttfts_ms(requests: Path) -> dict[Key, float]:
    """Time to first token of each request, from Dynamo's `--report-jsonl`."""
    with requests.open(encoding="utf-8") as lines:
        return _unique(
            (
                (round(row["arrival_time_ms"]), row["input_length"], row["output_length"]),
                row["ttft_ms"],
            )
            for row in map(json.loads, lines)
        )


def _unique(rows: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Only the values whose key occurs once: requests with equal keys cannot be told apart."""
    listed = list(rows)
    times = Counter(key for key, _ in listed)
    return {key: ttft_ms for key, ttft_ms in listed if times[key] == 1}
