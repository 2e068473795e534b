"""Writes a known run in the formats of benchmarks' results and servers' logs."""

import json
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sim.core.tokens import BlockPrompt
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.runlog import RunLog
from sim.workload.workload import Workload

_IO_STRUCT = "sglang.srt.managers.io_struct"
# When the run starts, on the clock of the results. It is small, so that a float in seconds is exact
# to a nanosecond.
EPOCH_S = 4096


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One served request; times are ns since the run's start."""

    rid: str
    arrival_ns: int
    scheduled_ns: int
    first_token_ns: int
    finish_ns: int
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    max_new_tokens: int
    ignore_eos: bool = False

    @property
    def itls_s(self) -> list[float]:
        """Inter-token latencies: one for each token after the first."""
        gaps = len(self.answer) - 1
        total_s = (self.finish_ns - self.first_token_ns) / NS_PER_S
        return [total_s / gaps] * gaps if gaps else []


def served_by(log: RunLog, workload: Workload) -> list[ServedRequest]:
    """The requests of an open-loop workload as a simulated server served them, by arrival."""
    columns = log.requests
    rows = {rid: row for row, rid in enumerate(columns.rid)}
    made = []
    for request in workload.arrivals():
        row = rows[request.spec.rid]
        num_output = int(columns.output_tokens[row])
        made.append(
            ServedRequest(
                rid=request.spec.rid,
                arrival_ns=int(columns.arrival_ns[row]),
                scheduled_ns=int(columns.scheduled_ns[row]),
                first_token_ns=int(columns.first_token_ns[row]),
                finish_ns=int(columns.finish_ns[row]),
                prompt=tuple(request.spec.prompt.token_ids().tolist()),
                answer=tuple(request.script.token_ids(num_output).tolist()),
                max_new_tokens=request.spec.max_new_tokens,
                ignore_eos=request.spec.ignore_eos,
            )
        )
    return made


def bench_row(served: Sequence[ServedRequest], **more: object) -> dict[str, object]:
    """The arrays of SGLang's and vLLM's serving benchmarks, after the keys of `more`."""
    return {
        **more,
        "input_lens": [len(one.prompt) for one in served],
        "output_lens": [len(one.answer) for one in served],
        "ttfts": [(one.first_token_ns - one.arrival_ns) / NS_PER_S for one in served],
        "itls": [one.itls_s for one in served],
        "generated_texts": ["" for _ in served],
        "errors": ["" for _ in served],
    }


def vllm_bench(served: Sequence[ServedRequest]) -> str:
    row = bench_row(
        served, endpoint_type="vllm", backend="vllm", model_id="org/Model-1B",
        num_prompts=len(served), request_rate=4.0, burstiness=1.0, max_concurrency=None,
        duration=9.5,
        start_times=[EPOCH_S + one.arrival_ns / NS_PER_S for one in served],
    )  # fmt: skip
    return json.dumps(row)


def sglang_bench(served: Sequence[ServedRequest], **more: object) -> str:
    first = {"backend": "sglang", "dataset_name": "random", "request_rate": float("inf")}
    return json.dumps(bench_row(served, **{**first, "max_concurrency": None, **more})) + "\n"


def aiperf(served: Sequence[ServedRequest]) -> str:
    return "".join(f"{json.dumps(_aiperf(place, one))}\n" for place, one in enumerate(served))


def _aiperf(place: int, one: ServedRequest) -> dict[str, object]:
    start_ns = EPOCH_S * NS_PER_S + one.arrival_ns

    def ms(end_ns: int) -> dict[str, object]:
        return {"value": (end_ns - one.arrival_ns) / NS_PER_MS, "unit": "ms"}

    return {
        "metadata": {
            "session_num": place,
            "x_request_id": one.rid,
            "turn_index": 0,
            "request_start_ns": start_ns,
            "request_end_ns": start_ns + one.finish_ns - one.arrival_ns,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        },
        "metrics": {
            "input_sequence_length": {"value": len(one.prompt), "unit": "tokens"},
            "output_sequence_length": {"value": len(one.answer), "unit": "tokens"},
            "time_to_first_token": ms(one.first_token_ns),
            "request_latency": ms(one.finish_ns),
        },
        "error": None,
    }


def sglang_json_log(served: Sequence[ServedRequest]) -> str:
    """A server's JSON log: for each request a line when it is received and one when it finishes."""
    lines = []
    for one in served:
        for event, more in (("received", {}), ("finished", {"out": _out(one)})):
            row = {"timestamp": "2026-01-31T12:00:00", "event": f"request.{event}"}
            text = json.dumps({**row, "rid": one.rid, "obj": _obj(one), **more})
            lines.append(f"[2026-01-31 12:00:00] {text}\n")
    return "".join(lines)


def sglang_text_log(served: Sequence[ServedRequest]) -> str:
    lines = ["[2026-01-31 11:59:59] The server is fired up and ready to roll!\n"]
    for one in served:
        fields = ", ".join(f"{name}={value!r}" for name, value in _obj(one).items())
        obj = f"GenerateReqInput({fields}, custom=<object at 0x7f>)"
        lines.append(f"[2026-01-31 12:00:00] Receive: obj={obj}\n")
        lines.append(f"[2026-01-31 12:00:00] Finish: obj={obj}, out={_out(one)!r}\n")
    return "".join(lines)


def sglang_dump(served: Sequence[ServedRequest]) -> bytes:
    """A dump of requests: a pickle whose classes have SGLang's names."""
    return sglang_dump_of([dump_entry(one) for one in served])


def dump_entry(one: ServedRequest) -> tuple[object, ...]:
    """One entry of a dump: the request's fields, its output, and two times."""
    created, ended = one.arrival_ns / NS_PER_S, one.finish_ns / NS_PER_S
    return _obj(one), _out(one), EPOCH_S + created, EPOCH_S + ended


def sglang_dump_of(entries: Sequence[object]) -> bytes:
    """A dump of any entries; if the first part of one is a mapping, it becomes a request."""
    with _io_struct() as request_class:
        dumped = [_with_request(entry, request_class) for entry in entries]
        return pickle.dumps({"server_args": {"page_size": 16}, "requests": dumped})


def _with_request(entry: object, request_class: type) -> object:
    if not isinstance(entry, tuple) or not entry or not isinstance(entry[0], dict):
        return entry
    request: Any = request_class()
    request.__dict__.update(entry[0])
    return request, *entry[1:]


@contextmanager
def _io_struct() -> Iterator[type]:
    """A class with the name of one of SGLang's; its module exists only within the block."""
    module = ModuleType(_IO_STRUCT)
    made = type("GenerateReqInput", (), {"__module__": _IO_STRUCT})
    module.GenerateReqInput = made  # type: ignore[attr-defined]
    names = ("sglang", "sglang.srt", "sglang.srt.managers", _IO_STRUCT)
    before = {name: sys.modules.get(name) for name in names}
    sys.modules |= {name: ModuleType(name) for name in names[:-1]} | {_IO_STRUCT: module}
    try:
        yield made
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[name]
            else:
                sys.modules[name] = old


def _obj(one: ServedRequest) -> dict[str, object]:
    return {
        "rid": one.rid,
        "text": None,
        "input_ids": list(one.prompt),
        "sampling_params": {"max_new_tokens": one.max_new_tokens, "ignore_eos": one.ignore_eos},
        "stream": True,
        "log_metrics": True,
        "priority": None,
    }


def _out(one: ServedRequest) -> dict[str, object]:
    ids = list(one.answer)
    return {"text": 'it\'s "so"\n', "output_ids": ids, "meta_info": _meta(one)}


def _meta(one: ServedRequest) -> dict[str, object]:
    received_s = EPOCH_S + one.arrival_ns / NS_PER_S
    return {
        "id": one.rid,
        "finish_reason": {"type": "stop", "matched": 2},
        "prompt_tokens": len(one.prompt),
        "completion_tokens": len(one.answer),
        "cached_tokens": 0,
        "request_received_ts": received_s,
        "forward_entry_time": EPOCH_S + one.scheduled_ns / NS_PER_S,
        "first_token_latency": (one.first_token_ns - one.arrival_ns) / NS_PER_S,
        "e2e_latency": (one.finish_ns - one.arrival_ns) / NS_PER_S,
        "request_finished_ts": EPOCH_S + one.finish_ns / NS_PER_S,
    }


def sglang_export(served: Sequence[ServedRequest]) -> str:
    """A file of `--export-metrics-to-file`."""
    rows = []
    for one in served:
        asked = {key: value for key, value in _obj(one).items() if value is not None}
        rows.append({"request_parameters": json.dumps(asked), **_meta(one)})
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def write_llmservingsim(served: Sequence[ServedRequest], workload: Workload, folder: Path) -> None:
    """Write LLMServingSim's folder of a measured run; prompts must be given by blocks."""
    folder.mkdir()
    rows, block_size = [], 0
    for one, request in zip(served, workload.arrivals(), strict=True):
        prompt = request.spec.prompt
        assert isinstance(prompt, BlockPrompt)
        block_size = prompt.block_size
        row = {
            "timestamp": one.arrival_ns // NS_PER_MS,
            "input_length": len(one.prompt),
            "output_length": len(one.answer),
            "hash_ids": prompt.block_ids.tolist(),
        }
        rows.append(row)
    lines = [_measured(place, one) for place, one in enumerate(served)]
    _write_lines(folder / f"workload.blk{block_size}.jsonl", rows)
    _write_lines(folder / "requests.jsonl", lines)


def _measured(place: int, one: ServedRequest) -> dict[str, object]:
    times = (one.arrival_ns, one.scheduled_ns, one.first_token_ns, one.finish_ns)
    keys = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    return {
        "request_id": f"bench-{place}",
        "input_toks": len(one.prompt),
        "output_toks": len(one.answer),
        **{key: EPOCH_S + time / NS_PER_S for key, time in zip(keys, times, strict=True)},
    }


def _write_lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
