"""Command lines of the simulators that are compared."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.places import PEERS, SCENARIOS
from sim.compiled.finder import PURE, why_pure
from sim.core.errors import InputError

_SIMULATE = [sys.executable, "-m", "sim"]
_PURE = ["env", f"{PURE}=1", *_SIMULATE]
POOL_TOKENS = 819_200
_DYNAMO = PEERS / "dynamo" / "bin" / "python"
_SCHED_SIM = PEERS / "sched-sim" / "bin" / "sched-sim"


def ours(scenario: str | Path, *overrides: str, options: tuple[str, ...] = ()) -> list[str]:
    """`simulate run` with a scenario of `bench/scenarios`, or one given by its path."""
    sets = [word for override in overrides for word in ("--set", override)]
    return [*_PURE, "run", str(SCENARIOS / scenario), *sets, *options]


def compiled(ours: list[str]) -> list[str]:
    """The same command for the compiled build; empty without one (see `make compiled`)."""
    return [*_SIMULATE, *ours[len(_PURE) :]] if why_pure() is None else []


def dynamo(
    trace: Path,
    report: Path,
    step_times: Path,
    *,
    workers: int = 1,
    page_size: int = 64,
    sglang: Mapping[str, object] | None = None,
    options: tuple[str, ...] = (),
) -> list[str]:
    """Dynamo's replay of a Mooncake trace with its SGLang engine.

    Args:
        trace: JSON lines, uncompressed.
        report: file for the summary.
        step_times: see `bench.step_times`.
        workers: number of servers, which get requests in turn.
        page_size: tokens of a page; the pool always has room for 819,200 tokens.
        sglang: settings of the engine; the default is chunks of 8,192 tokens and fcfs.
        options: more arguments.
    """
    chosen = {"page_size": page_size, "chunked_prefill_size": 8192, "schedule_policy": "fcfs"}
    engine = {
        "engine_type": "sglang",
        "num_gpu_blocks": POOL_TOKENS // page_size,
        "block_size": page_size,
        "max_num_seqs": 4096,
        "planner_profile_data": str(step_times),
        "sglang": {**chosen, **(sglang or {})},
    }
    arguments = [str(_DYNAMO), "-m", "dynamo.replay", str(trace), "--trace-block-size", "512"]
    arguments += ["--num-workers", str(workers), "--router-mode", "round_robin"]
    arguments += ["--extra-engine-args", json.dumps(engine), "--report-json", str(report)]
    return [*arguments, *options]


def sched_sim(trace: Path) -> list[str]:
    """sched-sim's replay in chunks of 512 tokens."""
    return [str(_SCHED_SIM), "trace", str(trace), "--token-budget", "512", "--no-gantt"]


def require_peers() -> None:
    """Check that the peers are installed.

    Raises:
        InputError: one of them is not.
    """
    for command in (_DYNAMO, _SCHED_SIM):
        if not command.exists():
            raise InputError(f"{command}: no such file; make bench-peers installs it")
