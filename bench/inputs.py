"""Input files for both sides of a comparison: the same requests and step times."""

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bench.places import INPUTS, TRACE
from sim.core.files import atomic_path

Row = dict[str, Any]

NUM_CHATS = 10_000
_CHATS_PER_S = 20.0
NUM_TURNS = 8_192
_TURNS = 4
NUM_AGENTS, AGENT_CALLS, AGENTS_AT_A_TIME = 240, 24, 24


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


class _Sessions(NamedTuple):
    """What conversations are made of: tokens, blocks of tokens, and the time before a turn."""

    num_turns: int
    num_prefixes: int
    prefix_blocks: int
    new_blocks: int
    block_tokens: int
    answer_tokens: int
    delay_ms: int = 0


def turns(folder: Path = INPUTS) -> Path:
    """The conversations of cache-pressure.yaml for Dynamo."""
    shape = _Sessions(_TURNS, 16, 4, new_blocks=8, block_tokens=128, answer_tokens=128)
    return _write_lines(folder / "turns.jsonl", _drawn_sessions(NUM_TURNS // _TURNS, shape))


def agents(folder: Path = INPUTS) -> Path:
    """The agents of agents.yaml for Dynamo."""
    shape = _Sessions(
        AGENT_CALLS, 4, 24, new_blocks=2, block_tokens=512, answer_tokens=256, delay_ms=4000
    )
    return _write_lines(folder / "agents.jsonl", _drawn_sessions(NUM_AGENTS, shape))


def _drawn_sessions(number: int, shape: _Sessions) -> Iterator[Row]:
    """What is new in each turn; a conversation begins with one of the prefixes."""
    draws = random.Random(1)
    fresh = count(shape.num_prefixes * shape.prefix_blocks)
    for session in range(number):
        first = draws.randrange(shape.num_prefixes) * shape.prefix_blocks
        prefix = range(first, first + shape.prefix_blocks)
        for turn in range(shape.num_turns):
            ids = [*(prefix if turn == 0 else ()), *(next(fresh) for _ in range(shape.new_blocks))]
            yield {
                "session_id": str(session),
                "hash_ids": ids,
                "output_length": shape.answer_tokens,
                "input_length": shape.block_tokens * len(ids),
                "delay": shape.delay_ms if turn else None,
            }


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
