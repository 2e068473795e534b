"""Results of SGLang's serving benchmark: `sglang.bench_serving --output-file F --output-details`.

Format of SGLang 0.5.23 (`sglang/benchmark/serving.py`) and 0.5.3 (`sglang/bench_serving.py`): one
run a line. Neither version saves the prompts or the times at which requests were sent. Such times
are read if a patched client has saved them as `arrival_times` (proposed in sgl-project/sglang,
pull request 39596) or `start_times`. 0.5.23 saves the server's settings as `server_info`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sim.sglang.results.settings import facts_of
from sim.workload.results.bench import (
    Pacing,
    accepted_of,
    concurrency_of,
    earlier_runs,
    other_settings_of,
    rate_of,
    read_document,
    read_requests,
)
from sim.workload.results.model import NO_PROMPTS, ImportedRun, ReadOptions, ServerFacts
from sim.workload.traces.files import JsonObject

_HINT = "results have it with --output-details"
_OTHER_SETTINGS = ("backend", "dataset_name", "request_rate", "max_concurrency", "tag")


def read_sglang_bench(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one run.

    Raises:
        InputError: the file is bad, or it has no arrival times and none may be drawn.
    """
    line, row = read_document(path, options.line)
    pacing = Pacing(rate_of(line, row), max_concurrency=concurrency_of(line, row))
    requests, notes = read_requests(line, row, pacing, options.draw_arrivals, hint=_HINT)
    if options.line is not None:
        notes += earlier_runs(path, line, row)
    return ImportedRun(requests, _facts(row), notes=(NO_PROMPTS, *notes, *_limits(row)))


def _facts(row: JsonObject) -> ServerFacts:
    other = other_settings_of(row, _OTHER_SETTINGS)
    info = row.get("server_info")
    facts = ServerFacts((str(row.get("backend")),), other_settings=other)
    if isinstance(info, Mapping) and "decode" not in info:
        facts = facts_of(info, other)
    return replace(facts, tokens_at_a_time=accepted_of(row, "accept_length"))


def _limits(row: JsonObject) -> list[str]:
    """Notes on features of the server that a simulation of this workload does not have."""
    notes = []
    cache = row.get("cache_report")
    if isinstance(cache, Mapping) and cache.get("total_cached_tokens"):
        share = cache.get("cache_hit_rate_pct")
        notes.append(f"the server found {share} % of the prompt tokens in its prefix cache")
    info = row.get("server_info")
    if isinstance(info, Mapping) and "decode" in info:
        notes.append("prefill and decode ran on separate servers; a simulated server does both")
    return notes
