"""How far to believe a summary, in words."""

from collections.abc import Mapping
from typing import Any

from sim.metrics.summary import Summary
from sim.tables.text import number, number_as, printable


def confidence_lines(summary: Summary) -> list[str]:
    """What the step times rest on, and between what the means of real servers would be."""
    confidence, source = summary.get("confidence", {}), summary.get("latency_source")
    parts = [part for part in (confidence.get("basis"), source) if part]
    lines = [printable(f"step times: {': '.join(parts)}")] if parts else []
    return [*lines, *interval_lines(confidence)]


def interval_lines(confidence: Mapping[str, Any]) -> list[str]:
    """The intervals of a summary's `confidence`, and whose they are; none if it has none."""
    ends = [
        f"{label} {number(interval['low'])} to {number(interval['high'])}{unit}"
        f"{_expected(interval)}"
        for name, label, unit in _INTERVALS
        if (interval := confidence.get(name)) is not None
    ]
    if not ends:
        return []
    level = number_as(".0f", confidence["level_pct"])
    servers = f"{confidence['rows']:,} measured servers {_LIKE_IT[confidence['lacks']]}"
    return [
        f"{level} % interval: {', '.join(ends)}",
        printable(f"    from {servers}; nearest: {_server_in_words(confidence['nearest'][0])}"),
    ]


def _expected(interval: Mapping[str, float]) -> str:
    expected = interval.get("expected")
    return "" if expected is None else f" (expected {number(expected)})"


_INTERVALS = (
    ("mean_ttft_ms", "mean TTFT", " ms"),
    ("mean_tpot_ms", "mean TPOT", " ms"),
    ("output_throughput", "output tokens/s", ""),
)
# Which measured servers an interval is from, by what they lack.
_LIKE_IT = {
    "nothing": "of this model, GPU and engine version",
    "version": "of this model and GPU, with other versions of the engine",
    "gpu": "of this model, on other GPUs",
    "model": "of other models of this architecture",
    "architecture": "of other architectures",
}


def _server_in_words(server: Mapping[str, Any]) -> str:
    return (
        f"{server['engine']} {server['version']}, {server['model']}, {server['num_gpus']}"
        f" {server['gpu']}, {server['prompt_tokens']}/{server['output_tokens']} tokens,"
        f" {server['concurrency']} requests at a time"
    )
