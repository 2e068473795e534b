"""Results of `vllm bench serve --save-result --save-detailed`.

Format of vLLM 0.19.0 (`vllm/benchmarks/serve.py`). `start_times` are in seconds of the client's
monotonic clock; results from before January 2026 (vllm-project/vllm, pull request 32667) do not
have them. An arrival is the time at which the client sent the request: the engine got it a little
later. The benchmark saves neither the prompts nor `ignore_eos` nor the outputs' limit.
"""

from pathlib import Path

from sim.workload.results.bench import (
    Pacing,
    accepted_of,
    concurrency_of,
    positive,
    rate_of,
    read_document,
    read_requests,
    told_of,
)
from sim.workload.results.model import NO_PROMPTS, ImportedRun, ReadOptions, ServerFacts

_HINT = "results have it with --save-detailed"
_TOLD = ("backend", "request_rate", "burstiness", "max_concurrency", "num_prompts", "label")


def read_vllm_bench(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one run.

    Raises:
        InputError: the file is bad, or it has no arrival times and none may be drawn.
    """
    line, row = read_document(path, options.line)
    burstiness = positive(line, row, "burstiness") if row.get("burstiness") is not None else 1.0
    # Arrival times cannot be drawn from a rate that ramps up.
    rate = None if row.get("ramp_up_strategy") is not None else rate_of(line, row)
    pacing = Pacing(rate, burstiness, concurrency_of(line, row))
    requests, notes = read_requests(line, row, pacing, options.draw_arrivals, hint=_HINT)
    return ImportedRun(requests, _facts(row), notes=(NO_PROMPTS, *notes))


def _facts(row: dict[str, object]) -> ServerFacts:
    backend, model = row.get("backend"), row.get("model_id")
    return ServerFacts(
        engines=(str(backend), "vllm"),
        model=model if isinstance(model, str) else "",
        told=told_of(row, _TOLD),
        tokens_at_a_time=accepted_of(row, "spec_decode_acceptance_length"),
    )
