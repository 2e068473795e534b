"""Input files for both sides of a comparison: the same requests and step times."""

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from bench.places import INPUTS, TRACE
from sim.core.files import atomic_path

Row = dict[str, Any]

NUM_CHATS = 10_000
_CHATS_PER_S = 20.0
NUM_TURNS = 8_192
_TURNS = 4
_PREFIXES = 16
_PREFIX_BLOCKS = 4


def conversation(trace: Path = TRACE) -> tuple[Path, int]:
    """Mooncake's conversation trace, uncompressed, as Dynamo needs it; and its number of rows."""
    rows = list(trace_rows(trace))
    return _write_lines(INPUTS / "conversation.jsonl", rows), len(rows)


def unshared_conversation(first_shared_blocks: int) -> Path:
    """The trace with new block ids, so that prompts share at most their first blocks.

    Args:
        first_shared_blocks: how many first blocks, of 512 tokens, prompts may share; 0: none.
    """
    path = INPUTS / f"conversation-{first_shared_blocks}.jsonl"
    return _write_lines(path, renamed_blocks(trace_rows(), first_shared_blocks))


def renamed_blocks(rows: Iterator[Row], first_shared_blocks: int) -> Iterator[Row]:
    """The rows, where each prompt keeps its first block ids, and its other ids become unique."""
    fresh = count(1_000_000_000)
    for row in rows:
        shared = row["hash_ids"][:first_shared_blocks]
        others = [next(fresh) for _ in row["hash_ids"][first_shared_blocks:]]
        yield {**row, "hash_ids": [*shared, *others]}


def trace_rows(trace: Path = TRACE) -> Iterator[Row]:
    """The rows of Mooncake's conversation trace."""
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def turns(folder: Path = INPUTS) -> Path:
    """The conversations of cache-pressure.yaml for Dynamo: each row has what is new in a turn.

    Blocks have 128 tokens. A conversation begins with one of 16 prefixes.
    """
    draws = random.Random(1)
    fresh = count(_PREFIXES * _PREFIX_BLOCKS)
    rows: list[Row] = []
    for conversation_id in range(NUM_TURNS // _TURNS):
        first = draws.randrange(_PREFIXES) * _PREFIX_BLOCKS
        prefix = list(range(first, first + _PREFIX_BLOCKS))
        for turn in range(_TURNS):
            ids = [*(prefix if turn == 0 else ()), *(next(fresh) for _ in range(8))]
            row = {"session_id": str(conversation_id), "hash_ids": ids, "output_length": 128}
            rows.append({**row, "input_length": 128 * len(ids), "delay": 0 if turn else None})
    return _write_lines(folder / "turns.jsonl", rows)


def chats(folder: Path = INPUTS) -> tuple[Path, Path]:
    """10,000 short chats without shared prefixes: one file for servetwin, one for sched-sim."""
    rows = list(_draw_chats())
    ours = (
        {
            "arrival": row["timestamp"],
            "segments": [[place, row["prompt_tokens"]]],
            "output_len": row["output_tokens"],
        }
        for place, row in enumerate(rows)
    )
    theirs = folder / "chats.json"
    with atomic_path(theirs) as beside:
        beside.write_text(json.dumps(rows), encoding="utf-8")
    return _write_lines(folder / "chats.jsonl", ours), theirs


def _draw_chats() -> Iterator[Row]:
    draws = random.Random(1)
    arrival_s = 0.0
    for place in range(NUM_CHATS):
        arrival_s += draws.expovariate(_CHATS_PER_S)
        yield {
            "id": f"r{place}",
            "timestamp": round(arrival_s, 4),
            "prompt_tokens": int(draws.triangular(30, 400, 120)),
            "output_tokens": int(draws.triangular(20, 300, 90)),
        }


def _write_lines(path: Path, rows: Iterable[Row]) -> Path:
    with atomic_path(path) as beside, beside.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    return path
