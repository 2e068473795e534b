"""The races against other simulators: the work, our command for it, and the peers'."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import commands
from bench.dynamo_commands import (
    DYNAMO_1_4,
    DYNAMO_1_6,
    TRANSFER_BYTES_PER_TOKEN,
    TRANSFER_GB_S,
    DynamoReplay,
    command_1_4,
    command_1_6,
)
from bench.inputs import AGENT_CALLS, AGENTS_AT_A_TIME, NUM_AGENTS, NUM_CHATS, NUM_TURNS
from bench.places import OUT, REPOSITORY

SCHED_SIM = "sched-sim 0.2.1"
NUM_MILLION = 1_000_000
# The linear step times of bench/scenarios, by scenario.
_B200 = (
    *("--step-s", "0.003", "--prefill-token-s", "1.1e-5"),
    *("--decode-row-s", "1e-5", "--context-token-s", "8e-9"),
)
STEP_TIMES = {
    "mooncake": (
        *("--step-s", "0.0057", "--prefill-token-s", "2.5e-5"),
        *("--decode-row-s", "1e-4", "--context-token-s", "1e-8"),
    ),
    "dense-vllm": _B200,
    "dense-sglang": _B200,
    "cache-pressure": _B200,
    "long-decode": _B200,
}


@dataclass(frozen=True, slots=True)
class Race:
    """One race, a row of a table.

    Attributes:
        work: description of the work.
        num_requests: requests that all serve; 0 if the table has no requests per second for it.
        ours: our command.
        theirs: the peers' commands, by the peer's name.
    """

    work: str
    num_requests: int
    ours: list[str]
    theirs: Mapping[str, list[str]] = field(default_factory=dict)


def _race(work: str, num_requests: int, ours: list[str], replay: DynamoReplay) -> Race:
    """A race against both versions of Dynamo."""
    theirs = {
        DYNAMO_1_4: command_1_4(replay, OUT / "dynamo.json"),
        DYNAMO_1_6: command_1_6(replay),
    }
    return Race(work, num_requests, ours, theirs)


def _race_1_6(work: str, num_requests: int, ours: list[str], replay: DynamoReplay) -> Race:
    """A race against version 1.6.1 alone."""
    return Race(work, num_requests, ours, {DYNAMO_1_6: command_1_6(replay)})


def conversation_races(trace: Path, num_requests: int, step_times: Path) -> list[Race]:
    """Mooncake's conversation trace."""

    def race(
        work: str, *, replicas: int = 1, page_size: int = 64, pace: int = 1, policy: str = "fcfs"
    ) -> Race:
        ours = commands.ours(
            "mooncake.yaml",
            f"workload.path={trace}",
            f"workload.time_scale={1 / pace}",
            f"replicas={replicas}",
            f"scheduler.page_size={page_size}",
            f"scheduler.schedule_policy={policy}",
        )
        replay = DynamoReplay(
            step_times=step_times,
            page_size=page_size,
            pool_tokens=819_200,
            slots=4096,
            policy=policy,
            replicas=replicas,
            trace=trace,
            pace=pace,
        )
        return _race(f"Mooncake, {work}", num_requests, ours, replay)

    return [
        race("1 replica"),
        race("4 replicas", replicas=4),
        race("4 replicas, page size 1", replicas=4, page_size=1),
        race("arrivals x 4, 1 replica, fcfs", pace=4),
        race("arrivals x 4, 1 replica, lpm", pace=4, policy="lpm"),
    ]


def server_races(trace: Path, num_requests: int, step_times: Path) -> list[Race]:
    """Mooncake's conversation trace on servers apart, and on a server of several ranks."""
    replay = DynamoReplay(
        step_times=step_times,
        page_size=64,
        pool_tokens=819_200,
        slots=4096,
        replicas=4,
        trace=trace,
    )
    apart = {
        role: {"role": role, "replicas": 4, "router": "round-robin"}
        for role in ("prefill", "decode")
    }
    transfer = {"bandwidth_gb_s": TRANSFER_GB_S, "bytes_per_token": TRANSFER_BYTES_PER_TOKEN}
    sets = f"pools={json.dumps(apart)}", f"transfer={json.dumps(transfer)}"
    path = f"workload.path={trace}"
    return [
        _race_1_6(
            "Mooncake, 4 prefill and 4 decode servers",
            num_requests,
            commands.ours("mooncake.yaml", path, *sets),
            replace(replay, decode_replicas=4),
        ),
        _race_1_6(
            "Mooncake, 1 server of 4 ranks",
            num_requests,
            commands.ours("mooncake.yaml", path, "latency.dp=4"),
            replace(replay, replicas=1, ranks=4),
        ),
    ]


def drafts_race(step_times: Path) -> Race:
    """Long decode with three draft tokens."""
    replay = DynamoReplay(
        step_times=step_times,
        page_size=1,
        pool_tokens=1_048_576,
        slots=256,
        lengths=(1024, 2048, 4_096),
        concurrency=128,
        accepted=(0.8, 0.6, 0.4),
    )
    drafts = (
        "scheduler.speculative_algorithm=EAGLE",
        f"scheduler.speculative_num_steps={len(replay.accepted)}",
        f"acceptance={json.dumps({'by_position': replay.accepted})}",
    )
    ours = commands.ours("long-decode.yaml", *drafts)
    return _race_1_6("long decode, SGLang, 3 draft tokens", replay.lengths[2], ours, replay)


def agents_race(trace: Path, step_times: Path) -> Race:
    """Agents whose prompts grow with each call."""
    replay = DynamoReplay(
        step_times=step_times,
        page_size=64,
        pool_tokens=819_200,
        slots=4096,
        trace=trace,
        trace_format="mooncake-delta",
        concurrency=AGENTS_AT_A_TIME,
    )
    work = f"{NUM_AGENTS} agents, {AGENT_CALLS} calls each"
    return _race_1_6(work, NUM_AGENTS * AGENT_CALLS, commands.ours("agents.yaml"), replay)


def aisimulate_races(conversations: Path, step_times: Path) -> list[Race]:
    """The cases of AISimulate's own benchmark."""

    def race(
        work: str,
        name: str,
        *,
        concurrency: int,
        family: str = "sglang",
        page_size: int = 1,
        pool_tokens: int = 1_048_576,
        lengths: tuple[int, int, int] = (0, 0, NUM_TURNS),
    ) -> Race:
        synthetic = any(lengths[:2])
        replay = DynamoReplay(
            step_times=step_times,
            family=family,
            page_size=page_size,
            pool_tokens=pool_tokens,
            slots=256,
            trace=None if synthetic else conversations,
            trace_format="mooncake-delta",
            block_size=128,
            lengths=lengths,
            concurrency=concurrency,
        )
        return _race(f"AISimulate, {work}", lengths[2], commands.ours(f"{name}.yaml"), replay)

    return [
        race(
            "dense, vLLM",
            "dense-vllm",
            concurrency=64,
            family="vllm",
            page_size=64,
            lengths=(1024, 128, 65_536),
        ),
        race("dense, SGLang", "dense-sglang", concurrency=64, lengths=(1024, 128, 16_384)),
        race("cache pressure, SGLang", "cache-pressure", concurrency=16, pool_tokens=32_768),
        race("long decode, SGLang", "long-decode", concurrency=128, lengths=(1024, 2048, 4_096)),
    ]


def chats_race(trace: Path) -> Race:
    """Chunked prefill without a prefix cache."""
    work = "10,000 chats, chunked prefill, no prefix cache"
    theirs = {SCHED_SIM: commands.sched_sim(trace)}
    return Race(work, NUM_CHATS, commands.ours("chunked.yaml"), theirs)


def start_up_race() -> Race:
    """The smallest scenario, whose time is nearly all start-up."""
    return Race("scenarios/smoke.yaml", 0, commands.ours(REPOSITORY / "scenarios" / "smoke.yaml"))


def million_race() -> Race:
    """A million requests, which takes minutes."""
    return Race("1,000,000 requests, 8 replicas", NUM_MILLION, commands.ours("million.yaml"))
