"""Imports measured runs of vLLM: results of its benchmark, and LLMServingSim's folders.

`vllm bench serve --save-result --save-detailed`, format of vLLM 0.19.0
(`vllm/benchmarks/serve.py`): `start_times` are in seconds of the client's monotonic clock; results
from before January 2026 (vllm-project/vllm, pull request 32667) do not have them. An arrival is the
time at which the client sent the request: the engine got it a little later. The benchmark saves
neither the prompts nor `ignore_eos` nor the outputs' limit.

LLMServingSim's folder (bench examples of casys-kaist/LLMServingSim, 2026) has a vLLM engine's log
of each request:

* `requests.jsonl[.gz]`: one request a line. `request_id` ends in the number of the request's row in
  the workload. The line also has `input_toks`, `output_toks`, and the times `queued_ts`,
  `scheduled_ts`, `first_token_ts` and `last_token_ts` in seconds of the server's monotonic clock.
  `queued_ts` is taken as the arrival, because requests reach the engine later than planned.
* `workload*.jsonl[.gz]`: the workload in Mooncake's format. If the file name contains `blkN`, such
  as `blk16`, an entry of `hash_ids` stands for N tokens, otherwise for 512.
* `meta.json` (optional): the engine's settings.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.family.section import ImportedSection, accepted_settings
from sim.vllm.read_launch import groups_of, pools_of_model
from sim.vllm.section.scheduler import VllmSection
from sim.vllm.version_rules import NEWEST, version_with_rules_of
from sim.workload import MAX_REQUESTS, MAX_TOKENS
from sim.workload.config import DEFAULT_BLOCK_SIZE
from sim.workload.prompts import BlockPrompts
from sim.workload.results.bench import (
    Pacing,
    accepted_of,
    concurrency_of,
    earlier_runs,
    other_settings_of,
    positive,
    rate_of,
    read_document,
    read_requests,
)
from sim.workload.results.model import (
    NO_PROMPTS,
    ImportedRequest,
    ImportedRun,
    PromptIds,
    ReadOptions,
    ServerFacts,
)
from sim.workload.traces.block_traces import read_mooncake
from sim.workload.traces.files import (
    JsonObject,
    TextLine,
    parse_object,
    read_json_lines,
    read_lines,
)
from sim.workload.traces.rows import TraceRows, shown, time_ns, whole

_HINT = "results have it with --save-detailed"
_BENCH_OTHER = ("backend", "request_rate", "burstiness", "max_concurrency", "num_prompts", "label")


def read_vllm_bench(path: Path, options: ReadOptions) -> ImportedRun:
    """Read one run.

    Raises InputError: the file is bad, or it has no arrival times and none may be drawn.
    """
    line, row = read_document(path, options.line)
    burstiness = positive(line, row, "burstiness") if row.get("burstiness") is not None else 1.0
    # Arrival times cannot be drawn from a rate that ramps up.
    rate = None if row.get("ramp_up_strategy") is not None else rate_of(line, row)
    pacing = Pacing(rate, burstiness, concurrency_of(line, row))
    requests, notes = read_requests(line, row, pacing, options.draw_arrivals, hint=_HINT)
    if options.line is not None:
        notes += earlier_runs(path, line, row)
    return ImportedRun(requests, _bench_facts(row), notes=(NO_PROMPTS, *notes))


def _bench_facts(row: dict[str, object]) -> ServerFacts:
    backend, model = row.get("backend"), row.get("model_id")
    return ServerFacts(
        engines=(str(backend), "vllm"),
        model=model if isinstance(model, str) else "",
        other_settings=other_settings_of(row, _BENCH_OTHER),
        tokens_at_a_time=accepted_of(row, "spec_decode_acceptance_length"),
    )


_REQUESTS = ("requests.jsonl", "requests.jsonl.gz")
_WORKLOAD = ("workload*.jsonl", "workload*.jsonl.gz")
_TIMES = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
# A row number has fewer digits than this; more are not read.
_TOO_MANY_DIGITS = len(str(MAX_REQUESTS)) + 1
_ROW = re.compile(r"(?:^|\D)(\d+)$", re.ASCII)
_BLOCK = re.compile(r"\bblk(\d+)\b", re.ASCII)
_SETTINGS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
# As many as a scenario's `latency.dp` takes.
_MAX_RANKS = 1024
_OTHER_SETTINGS = ("tensor_parallel_size", "dtype", "kv_cache_dtype")


def find_requests(folder: Path) -> list[Path]:
    """The files by which a folder of LLMServingSim is recognised."""
    return _found(folder, *_REQUESTS)


def read_llmservingsim(path: Path) -> ImportedRun:
    """Read a folder.

    Raises InputError: a file is missing or bad, or a request has no row in the workload.
    """
    requests_path = _only(path, *_REQUESTS)
    workload_path = _only(path, *_WORKLOAD)
    named = _BLOCK.search(workload_path.name)
    block_size = DEFAULT_BLOCK_SIZE if named is None else _block_size(workload_path, named[1])
    rows = read_mooncake(workload_path, limit=None, block_size=block_size)
    requests: list[ImportedRequest] = []
    lines: dict[int, int] = {}
    for line, row in read_json_lines(requests_path):
        place = _row_number(line, row, len(rows.arrival_ns))
        if place in lines:
            raise line.error("request_id", f"row {place} already belongs to line {lines[place]}")
        lines[place] = line.number
        requests.append(_request(line, row, place, rows))
    if not requests:
        raise InputError(f"{requests_path}: holds no results")
    missing = sorted(set(range(len(rows.arrival_ns))) - set(lines))
    left_out = [f"row {place} of {workload_path.name}: never measured" for place in missing]
    facts = _facts(path / "meta.json", block_size)
    return ImportedRun(requests, facts, left_out=tuple(left_out))


def _block_size(path: Path, digits: str) -> int:
    size = int(digits) if len(digits) <= len(str(MAX_TOKENS)) else 0
    if not 1 <= size <= MAX_TOKENS:
        raise InputError(f"{path}: blk{digits}: is no number of tokens in a block")
    return size


def _request(line: TextLine, row: JsonObject, place: int, rows: TraceRows) -> ImportedRequest:
    prompts = rows.prompts
    assert isinstance(prompts, BlockPrompts)  # noqa: S101 - what read_mooncake makes
    prompt = prompts.prompt(place)
    prompt_tokens = whole(line, row, "input_toks")
    if prompt_tokens != len(prompt):
        raise line.error("input_toks", f"is {prompt_tokens}, but row {place} has {len(prompt)}")
    # An aborted request has no times after its end.
    arrival, scheduled, first, last = (_time(line, row, key) for key in _TIMES)
    if arrival is None:
        raise line.error("queued_ts", "missing")
    return ImportedRequest(
        rid=str(row["request_id"]),
        arrival_ns=arrival,
        scheduled_ns=scheduled,
        first_token_ns=first,
        finish_ns=last,
        prompt_tokens=prompt_tokens,
        output_tokens=whole(line, row, "output_toks", low=0),
        failure="" if last is not None else "no last token",
        prompt_ids=PromptIds(prompt.block_ids, prompts.block_size),
    )


def _time(line: TextLine, row: JsonObject, key: str) -> int | None:
    return None if row.get(key) is None else time_ns(line, row, key, unit_ns=NS_PER_S)


def _row_number(line: TextLine, row: JsonObject, num_rows: int) -> int:
    rid = row.get("request_id")
    match = _ROW.search(rid[-_TOO_MANY_DIGITS:]) if isinstance(rid, str) else None
    if match is None or len(match[1]) == _TOO_MANY_DIGITS:
        raise line.error("request_id", f"{shown(rid)} does not end in a row number")
    place = int(match[1])
    if place >= num_rows:
        raise line.error("request_id", f"{shown(rid)}: the workload has only {num_rows} rows")
    return place


def _facts(path: Path, block_size: int) -> ServerFacts:
    scheduler: dict[str, object] = {"block_size": block_size}
    if not path.is_file():
        return ServerFacts(("vllm",), scheduler=scheduler)
    text = "\n".join(each.text for each in read_lines(path))
    line = TextLine(str(path), 1, text)
    meta = parse_object(line)
    engine = meta.get("engine_kwargs")
    engine = engine if isinstance(engine, dict) else {}
    scheduler |= {key: engine[key] for key in _SETTINGS if engine.get(key) is not None}
    other = {key: engine[key] for key in _OTHER_SETTINGS if engine.get(key) is not None}
    version = meta.get("vllm_version")
    version = version if isinstance(version, str) else ""
    if version:
        other["vllm_version"] = version
    if (taken := version_with_rules_of(version)) not in {None, NEWEST}:
        scheduler["version"] = taken
    num_ranks = 1
    if engine.get("data_parallel_size") is not None:
        num_ranks = whole(line, engine, "data_parallel_size", high=_MAX_RANKS)
    if num_ranks > 1:
        other["data_parallel_size"] = num_ranks
        other["enable_expert_parallel"] = engine.get("enable_expert_parallel") is True
    model = meta.get("model")
    name = model if isinstance(model, str) else ""
    # vLLM's ranks step together only to compute experts together.
    together = num_ranks if engine.get("enable_expert_parallel") is True else 1
    return ServerFacts(("vllm",), name, scheduler, other, together, version=version)


def _found(folder: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())


def _only(folder: Path, *patterns: str) -> Path:
    found, expected = _found(folder, *patterns), patterns[-1]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"{folder}: has no {expected}")
    names = ", ".join(path.name for path in found)
    raise InputError(f"{folder}: expected one {expected}, found {names}")


# A safety margin: tokens of room for each request beyond its prompt and output.
_SPARE = 16
_POOL_HINT = (
    "PLACEHOLDER: num_gpu_blocks_override has room for all requests at once. Give your server's"
    " number of blocks: vLLM logs its KV cache size in tokens; divide that by block_size."
)


def vllm_section(
    known_settings: Mapping[str, object], sizes: Sequence[int], model: str = ""
) -> ImportedSection:
    """See `Family.imported_section`."""
    settings, hints = accepted_settings(VllmSection, {"family": "vllm"}, known_settings)
    groups, notes = pools_of_model(model, settings, 1)
    settings |= groups
    hints += notes
    if "num_gpu_blocks_override" not in settings:
        block_size = int(settings.get("block_size", VllmSection(family="vllm").block_size))
        num_blocks = sum(-(-(size + _SPARE) // block_size) for size in sizes)
        # Every group of layers has a block for the same tokens.
        num_groups = sum(group.count for group in groups_of(model) or ()) if groups else 1
        settings["num_gpu_blocks_override"] = num_blocks * num_groups + 1
        hints.append(_POOL_HINT)
    return ImportedSection(settings, hints)
