"""Good traces, small ones of every format and every variant of a format."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.scenarios import BASE
from sim.workload.traces.servetwin import servetwin_line

_ROWS = range(12)


class Trace(NamedTuple):
    """A trace's format as a scenario names it, the name of its file, and the file's content."""

    format: str
    file: str
    text: str


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def _csv(*rows: str) -> str:
    return "\n".join(rows) + "\n"


def _all() -> dict[str, tuple[str, str]]:
    """By case: name of the file, and its content; a case's first word is its format."""
    blocks = [
        {"timestamp": 40 * i, "input_length": 700, "output_length": 5, "hash_ids": [i % 3, 100 + i]}
        for i in _ROWS
    ]
    no_blocks = [{"timestamp": 40 * i, "input_length": 70 + i, "output_length": 5} for i in _ROWS]
    sessions = [
        {"session_id": f"s{i % 3}", "input_length": 60, "output_length": 5,
         **({"delay": 250} if i > 2 else {"timestamp": 40 * i})}
        for i in _ROWS
    ]  # fmt: skip
    autobench = [
        {"timestamp": 40 * i, "prompt": [[7] * 40, f"text {i}" * 9][i % 2], "output_len": 5,
         **({"prompt_len": 30} if i % 2 else {})}
        for i in _ROWS
    ]  # fmt: skip
    own = [
        {"rid": f"r{i}", "segments": [[1, 64], [10 + i, 20]], "output_len": 5, "priority": i % 2,
         "tenant": "a", "session": "s"}
        for i in _ROWS
    ]  # fmt: skip
    bailian = [
        {"chat_id": i, "parent_chat_id": i - 4 if i > 3 else -1, "timestamp": i / 20, "turn": 1,
         "type": "text", "input_length": 40, "output_length": 5, "hash_ids": [i % 3, 100 + i]}
        for i in _ROWS
    ]  # fmt: skip
    calls = [{"t": 9.0 * i, "type": "s", "in": 200, "out": 5, "hash_ids": [1, 2, 3], "api_time": 2,
              **({"think_time": 0.5} if i % 2 else {})} for i in range(3)]  # fmt: skip
    sub_agent = {"type": "subagent", "t": 30, "requests": calls}
    weka = [
        {"id": f"s{i}", "block_size": 64, "hash_id_scope": "local", "requests": [*calls, sub_agent]}
        for i in range(3)
    ]
    turns = [("user", "What is it? " * 9), ("assistant", "It is that. " * 4)] * 2
    said = [{"from": {"user": "human"}.get(who, "gpt"), "value": text} for who, text in turns]
    chat = [{"role": who, "content": text} for who, text in turns]
    return {
        "mooncake": ("mooncake.jsonl", _lines(blocks)),
        "mooncake without blocks": ("lengths.jsonl", _lines(no_blocks)),
        "mooncake sessions": ("sessions.jsonl", _lines(sessions)),
        "azure": ("azure.csv", _csv(
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            *(f"2023-11-16 18:15:{i:02}.6805900,{50 + i},{5 + i}" for i in _ROWS))),
        "azure 2024": ("azure-2024.csv", _csv(
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            *(f"2024-05-10 00:00:{i:02}.009930+00:00,{50 + i},{5 + i}" for i in _ROWS))),
        "azure 2025": ("azure-2025.csv", _csv(
            "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens",
            *(f"2024-10-15 00:00:{i:02}.0000000,{i % 3},{50 + i},{5 + i}" for i in _ROWS))),
        "servetwin": ("servetwin.jsonl", "".join(
            servetwin_line(40_000_000 * i, row) for i, row in enumerate(own))),
        "autobench": ("autobench.jsonl", _lines(autobench)),
        "burstgpt": ("burstgpt.csv", _csv(
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            *(f"{i},ChatGPT,{50 + i},{5 + i},{55 + 2 * i},API log" for i in _ROWS))),
        "burstgpt 2": ("burstgpt-2.csv", _csv(
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
            "Log Type",
            *(f"{i}.0,s{i % 3},43,GPT-4,{50 + i},{5 + i},{55 + 2 * i},API log" for i in _ROWS))),
        "bailian": ("bailian.jsonl", _lines(bailian)),
        "weka": ("weka.jsonl", _lines(weka)),
        "sharegpt": ("sharegpt.jsonl", _lines([{"id": "x", "conversations": said}] * 3)),
        "lmsys": ("lmsys.jsonl", _lines([{"timestamp": i, "conversation": chat} for i in _ROWS])),
    }  # fmt: skip


TRACES: Mapping[str, Trace] = {
    name: Trace(name.partition(" ")[0], file, text) for name, (file, text) in _all().items()
}


def write_traces(folder: Path) -> None:
    """Write each trace, and a scenario that replays it, into a folder."""
    for trace in TRACES.values():
        (folder / trace.file).write_text(trace.text, encoding="utf-8")
        workload = {"kind": "trace", "format": trace.format, "path": trace.file}
        scenario = json.dumps({**BASE, "workload": workload})
        (folder / scenario_of(trace)).write_text(scenario, encoding="utf-8")


def scenario_of(trace: Trace) -> str:
    """The name of the scenario that replays a trace."""
    return f"trace-{trace.file.partition('.')[0]}.yaml"
