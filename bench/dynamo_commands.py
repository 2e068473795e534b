"""Command lines of Dynamo's replay, of two versions, for the same work."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.places import PEERS, REPOSITORY

DYNAMO_1_4 = "Dynamo 1.4.2"
DYNAMO_1_6 = "Dynamo 1.6.1"
PYTHON_1_4 = PEERS / "dynamo-1.4.2" / "bin" / "python"
PYTHON_1_6 = PEERS / "dynamo-1.6.1" / "bin" / "python"
# How servers apart send KV, in both simulators.
TRANSFER_GB_S, TRANSFER_BYTES_PER_TOKEN = 50.0, 131_072
_SCRIPT_1_6 = REPOSITORY / "bench" / "dynamo_replay.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoReplay:
    """What Dynamo simulates.

    Attributes:
        step_times: a table of `bench.step_times`.
        family: its engine, `sglang` or `vllm`.
        page_size, pool_tokens, slots: of each server: tokens of a page, tokens of the KV pool, and
            the most running requests.
        policy: SGLang's schedule policy, `fcfs` or `lpm`.
        sglang: more settings of the SGLang engine.
        replicas: number of servers, which get requests in turn.
        decode_replicas: servers apart: `replicas` are those that prefill, and these decode.
        ranks: of each server, with data-parallel attention.
        accepted: with drafts, the probability for each draft token that it is accepted if all
            before it were.
        trace: requests as JSON lines; None: synthetic ones.
        trace_format, block_size: of the trace: its format's name, and tokens of a block id.
        lengths: of synthetic requests: prompt tokens, output tokens, number of requests.
        concurrency: requests, or conversations, under way at a time; None: as they arrive.
        pace: recorded arrivals come this many times as fast.
    """

    step_times: Path
    family: str = "sglang"
    page_size: int
    pool_tokens: int
    slots: int
    policy: str = "fcfs"
    sglang: Mapping[str, object] = field(default_factory=dict)
    replicas: int = 1
    decode_replicas: int = 0
    ranks: int = 1
    accepted: tuple[float, ...] = ()
    trace: Path | None = None
    trace_format: str = "mooncake"
    block_size: int = 512
    lengths: tuple[int, int, int] = (0, 0, 0)
    concurrency: int | None = None
    pace: int = 1


def command_1_4(replay: DynamoReplay, report: Path, *options: str) -> list[str]:
    """Version 1.4.2's own command, which writes a summary to `report`."""
    engine = {
        **_engine(replay),
        "engine_type": replay.family,
        "planner_profile_data": str(replay.step_times),
    }
    if replay.family == "sglang":
        engine["sglang"] = {"page_size": replay.page_size, **_sglang(replay)}
    given: dict[str, object] = {
        "num-workers": replay.replicas,
        "router-mode": "round_robin",
        "extra-engine-args": json.dumps(engine),
        "report-json": report,
        "replay-concurrency": replay.concurrency,
    }
    if replay.trace is None:
        names = ("input-tokens", "output-tokens", "request-count")
        given |= dict(zip(names, replay.lengths, strict=True))
    else:
        given |= {"trace-format": replay.trace_format, "trace-block-size": replay.block_size}
        given |= {"arrival-speedup-ratio": replay.pace}
    arguments = [] if replay.trace is None else [str(replay.trace)]
    for name, value in given.items():
        arguments += [] if value is None else [f"--{name}", str(value)]
    return [str(PYTHON_1_4), "-m", "dynamo.replay", *arguments, *options]


def command_1_6(replay: DynamoReplay) -> list[str]:
    """Version 1.6.1's replay, called from Python; see `bench/dynamo_replay.py`."""
    timing = {"provider": "dynamo_profile", "config": {"path": str(replay.step_times)}}
    engine = {
        **_engine(replay),
        "backend": replay.family,
        "timing_model": {"type": "external", **timing},
    }
    if replay.family == "sglang":
        policy = "fifo" if replay.policy == "fcfs" else replay.policy
        engine["sglang"] = {**_sglang(replay), "schedule_policy": policy}
    if replay.accepted:
        engine |= {"aic_nextn": len(replay.accepted)}
        engine |= {"aic_nextn_accept_rates": ",".join(map(str, replay.accepted))}
    call: dict[str, object] = {
        **_servers(replay, engine),
        "router_mode": "round_robin",
        "replay_concurrency": replay.concurrency,
    }
    if replay.trace is None:
        names = ("input_tokens", "output_tokens", "request_count")
        call |= dict(zip(names, replay.lengths, strict=True))
    else:
        call |= {"trace_files": [str(replay.trace)], "trace_format": replay.trace_format}
        call |= {"trace_block_size": replay.block_size, "arrival_speedup_ratio": replay.pace}
    return [str(PYTHON_1_6), str(_SCRIPT_1_6), json.dumps(call)]


def _servers(replay: DynamoReplay, engine: Mapping[str, object]) -> dict[str, object]:
    """The servers of version 1.6.1 by the names of its arguments."""
    if not replay.decode_replicas:
        ranks = {} if replay.ranks == 1 else {"dp_size": replay.ranks}
        return {
            "extra_engine_args": {"engine": engine, **ranks},
            "num_workers": replay.replicas,
        }
    transfers = {
        "kv_transfer_bandwidth": TRANSFER_GB_S,
        "kv_transfer_bytes_per_token": TRANSFER_BYTES_PER_TOKEN,
    }
    apart = {
        f"{role}_engine_args": {"engine": {**engine, **transfers, "worker_type": role}}
        for role in ("prefill", "decode")
    }
    numbers = {
        "num_prefill_workers": replay.replicas,
        "num_decode_workers": replay.decode_replicas,
    }
    return {**apart, **numbers}


def _engine(replay: DynamoReplay) -> dict[str, object]:
    return {
        "num_gpu_blocks": replay.pool_tokens // replay.page_size,
        "block_size": replay.page_size,
        "max_num_seqs": replay.slots,
        "max_num_batched_tokens": 8192,
    }


def _sglang(replay: DynamoReplay) -> dict[str, object]:
    return {"chunked_prefill_size": 8192, "schedule_policy": replay.policy, **replay.sglang}


def step_times_command(path: Path, *step_times: str) -> list[str]:
    """Writes the table that a replay reads; see `bench.step_times`."""
    return [sys.executable, "-m", "bench.step_times", str(path), *step_times]
