"""SGLang's auto-benchmark data sets: JSON lines with prompts as text, messages or token ids.

Follows `python/sglang/benchmark/datasets/autobench.py` of SGLang's main branch (2026; the 0.5.23
package does not contain it). Deliberate differences: there is no tokenizer here, so a prompt that
is not given as token ids needs `prompt_len`. Rows without content are errors, and so are prompts of
several rounds or with images.
"""

import json
from itertools import islice
from pathlib import Path

import numpy as np

from sim.core.arrays import Int64
from sim.workload.limits import MAX_TOKENS
from sim.workload.prompts import ArrayPrompts
from sim.workload.traces.fields import shown, time_ns, whole, why_not_whole
from sim.workload.traces.files import JsonObject, TextLine, read_json_lines
from sim.workload.traces.rows import IntColumn, TraceRows, require_rows
from sim.workload.traces.text_tokens import text_token_ids

_OUTPUT_KEYS = ("output_len", "max_tokens", "max_completion_tokens", "completion_tokens")
_DEFAULT_OUTPUT_LEN = 256  # as in SGLang
_MAX_TOKEN_ID = (1 << 31) - 1


def read_autobench(path: Path, *, limit: int | None) -> TraceRows:
    """Read the rows. Unknown fields, which SGLang passes to its API, are ignored.

    `timestamp` is in ms; time counts from the earliest row. Without time stamps all requests arrive
    at once, as with an unlimited request rate. The first of `output_len, max_tokens,
    max_completion_tokens, completion_tokens` is the output length, 256 if there is none.
    """
    arrivals, outputs, num_tokens = IntColumn(), IntColumn(), IntColumn()
    contents: list[str | Int64] = []
    timed = None
    for line, row in islice(read_json_lines(path), limit):
        has_time = row.get("timestamp") is not None
        timed = has_time if timed is None else timed
        if timed != has_time:
            raise line.error("timestamp", "some rows have one and some do not")
        arrivals.append(time_ns(line, row, "timestamp") if has_time else 0)
        content = _content(line, row)
        contents.append(content)
        num_tokens.append(_prompt_len(line, row, content))
        outputs.append(_output_len(line, row))
    require_rows(len(arrivals), path)
    arrival_ns = arrivals.to_numpy()
    return TraceRows(
        arrival_ns=arrival_ns - arrival_ns.min(),
        prompts=_prompts(contents, num_tokens.to_numpy()),
        output_tokens=outputs.to_numpy(),
        has_times=bool(timed),
    )


def _prompts(contents: list[str | Int64], num_tokens: Int64) -> ArrayPrompts:
    texts = [content for content in contents if isinstance(content, str)]
    is_text = np.array([isinstance(content, str) for content in contents])
    made = iter(text_token_ids(texts, num_tokens[is_text]))
    ids = [next(made) if isinstance(content, str) else content for content in contents]
    return ArrayPrompts(np.concatenate(ids), np.concatenate(([0], np.cumsum(num_tokens))))


def _content(line: TextLine, row: JsonObject) -> str | Int64:
    """The prompt's token ids, or its text; messages become text as JSON."""
    if row.get("image_data"):
        raise line.error("image_data", "prompts with images are not supported")
    for key in ("messages", "prompt", "prompt_origin"):
        value = _unpacked(row.get(key))
        if value:
            return _checked(line, key, value)
    # The older layout: a system prompt and turns. If their number is even, the last is the answer.
    turns = row.get("content")
    if "system" in row and isinstance(turns, list) and turns:
        asked = turns[:-1] if len(turns) % 2 == 0 else turns
        return json.dumps([row["system"], *asked], default=str)
    raise line.error("prompt", "missing")


def _unpacked(value: object) -> object:
    """The list or object that a text holds as JSON; other values as they are."""
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _checked(line: TextLine, key: str, value: object) -> str | Int64:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(type(item) is int for item in value):
        if not all(0 <= item <= _MAX_TOKEN_ID for item in value):
            bad = next(item for item in value if not 0 <= item <= _MAX_TOKEN_ID)
            raise line.error(key, why_not_whole(bad, 0, _MAX_TOKEN_ID))
        return np.array(value, dtype=np.int64)
    if isinstance(value, list) and all(
        isinstance(item, dict) and "role" in item and item.get("content") is not None
        for item in value
    ):
        return json.dumps([[item["role"], item["content"]] for item in value], default=str)
    if isinstance(value, list) and all(isinstance(item, str | list) for item in value):
        raise line.error(key, "prompts of several rounds are not supported")
    raise line.error(key, f"{shown(value)} is neither text, nor messages, nor token ids")


def _prompt_len(line: TextLine, row: JsonObject, content: str | Int64) -> int:
    given = row.get("prompt_len")
    if isinstance(content, str):
        if given is None:
            raise line.error("prompt_len", "missing, and there is no tokenizer to count the text")
        return whole(line, row, "prompt_len")
    if given is not None and whole(line, row, "prompt_len") != len(content):
        raise line.error("prompt_len", f"is {given}, but there are {len(content)} token ids")
    if len(content) > MAX_TOKENS:
        raise line.error("prompt", f"{len(content)} tokens, above {MAX_TOKENS}")
    return len(content)


def _output_len(line: TextLine, row: JsonObject) -> int:
    key = next((key for key in _OUTPUT_KEYS if row.get(key) is not None), None)
    return _DEFAULT_OUTPUT_LEN if key is None else whole(line, row, key)
