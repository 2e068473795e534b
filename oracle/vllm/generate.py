"""Random cases for vLLM from a seed: `python -m oracle.vllm.generate FOLDER N SEED VERSION`."""

import json
import random
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from oracle.vllm.draw_groups import draw_groups
from oracle.vllm.draw_handover import ROLES, draw_handovers, draw_role, draw_times
from oracle.vllm.draw_offload import draw_offload, draw_simple, draw_tiers
from oracle.vllm.draw_ranks import dealt, draw_ranks
from oracle.vllm.load import STEP_S, Config, Load, Row, draw_rows, has_limits


def draw_config(rng: random.Random) -> Config:
    """Settings of one server, often close to its limits, with which vLLM still starts."""
    block_size = rng.choice([1, 4, 8, 16, 16, 16, 32])
    # One block is reserved; the longest request of the model just fits the others.
    usable_blocks = rng.choice([4, 6, 9, 14, 25, 60, 200])
    usable_blocks *= max(1, 8 // block_size)
    pool_tokens = usable_blocks * block_size
    max_model_len = rng.choice([pool_tokens, pool_tokens, pool_tokens // 2, min(pool_tokens, 150)])
    max_num_seqs = rng.choice([1, 2, 4, 4, 8, 16, 64])
    enable_chunked_prefill = rng.random() < 0.8
    budget = max(max_num_seqs, rng.choice([8, 16, 33, 64, 100, 128, 256, 1024]))
    if not enable_chunked_prefill:
        budget = max(max_num_seqs, max_model_len + rng.choice([0, 1, 20, 200]))
    return {
        "max_num_batched_tokens": budget,
        "max_num_seqs": max_num_seqs,
        "max_model_len": max_model_len,
        "block_size": block_size,
        "num_gpu_blocks": usable_blocks + 1,
        "enable_prefix_caching": rng.random() < 0.7,
        "enable_chunked_prefill": enable_chunked_prefill,
        "long_prefill_token_threshold": rng.choice([0, 0, 0, 5, 16, 24, 40, 100]),
        "policy": rng.choice(["fcfs", "fcfs", "priority"]),
        "async_scheduling": rng.random() < 0.5,
        "scheduler_reserve_full_isl": rng.random() < 0.6,
        "latency": _draw_latency(rng),
    }


def draw_limits(rng: random.Random, config: Config) -> Config:
    """The settings that came with 0.33.0; most of them are off in most cases."""
    limits: Config = {}
    # vLLM 0.33.0 refuses a threshold that is longer than any request.
    threshold = min(config["long_prefill_token_threshold"], config["max_model_len"])
    limits["long_prefill_token_threshold"] = threshold
    limits["long_prefill_token_threshold_adaptive"] = rng.random() < 0.3
    limits["watermark"] = rng.choice([0.0, 0.0, 0.0, 0.01, 0.1, 0.3])
    limits["prefill_schedule_interval"] = rng.choice([1, 1, 1, 2, 3, 8])
    if rng.random() < 0.2:
        limits["max_num_active_seqs"] = rng.randint(1, config["max_num_seqs"])
    if rng.random() < 0.1:
        limits["max_num_queued_reqs"] = rng.choice([0, 1, 3, 8, 20])
    if rng.random() < 0.1:
        limits["max_num_queued_tokens"] = rng.choice([0, 10, 50, 200])
    return limits


def _draw_latency(rng: random.Random) -> dict[str, float]:
    if rng.random() < 0.15:
        return {"a": STEP_S, "b": 0, "c": 0, "d": 0}
    return {
        "a": rng.choice([0.002, STEP_S]),
        "b": rng.choice([1e-5, 4e-5]),
        "c": rng.choice([5e-5, 2e-4]),
        "d": rng.choice([0, 2e-8]),
    }


def draw_load(rng: random.Random, config: Config) -> Load:
    """A load for a server with these settings."""
    return Load(
        num_requests=rng.choice([12, 25, 50]),
        gap_s=rng.choice([0.0, 0.002, 0.02, 0.1, 0.5]),
        longest_prompt=max(2, config["max_model_len"] // rng.choice([1, 2, 4])),
        longest_output=rng.choice([4, 20, 60]),
        sharing=0.5,
        quoting=0.3,
        repeating=0.15,
        whole_blocks=0.4,
        too_long=0.1,
        endless=rng.choice([0.0, 0.3, 1.0]),
    )


def draw_patience(rng: random.Random) -> dict[str, float]:
    """How many clients give up, and when."""
    return {
        "impatient": rng.choice([0.0, 0.0, 0.2, 0.8]),
        "patience_s": rng.choice([0.01, 0.05, 0.3, 2.0]),
    }


def draw_speculation(rng: random.Random, config: Config) -> Config:
    """The same server with speculative decoding.

    With stages it needs async scheduling, which the second model runner has for every method.
    """
    num_drafts, has_stages = rng.randint(1, 5), config.get("stages", 1) > 1
    if has_stages:
        config = config | {"async_scheduling": True}
    methods = ["eagle", "mtp", "draft_model"] + ["ngram"] * (
        has_stages or not config["async_scheduling"]
    )
    method = rng.choice(methods)
    best = rng.choice([0.0, 0.4, 0.8, 0.95, 1.0])
    by_position = [round(best * rng.uniform(0.7, 1.0), 3) for _ in range(num_drafts)]
    changed: Config = {
        "speculation": {
            "method": method,
            "num_speculative_tokens": num_drafts,
            "by_position": by_position,
        },
    }
    if method == "ngram" and rng.random() < 0.8:
        changed["speculation"]["proposed"] = _draw_proposed(rng, num_drafts)
    threshold = config["long_prefill_token_threshold"]
    if threshold:
        changed["long_prefill_token_threshold"] = max(threshold, 1 + num_drafts)
    if method == "draft_model":
        changed["max_num_batched_tokens"] = (
            config["max_num_batched_tokens"] + config["max_num_seqs"]
        )
    return config | changed


def _draw_proposed(rng: random.Random, num_drafts: int) -> list[float]:
    """The shares of steps with 0, 1, ... draft tokens, in hundredths."""
    nothing = rng.choice([0, 30, 60, 90])
    found = [0] * (1 + num_drafts)
    for _ in range(100 - nothing):
        found[rng.choice([num_drafts, rng.randint(1, num_drafts)])] += 1
    return [(count + nothing * (not place)) / 100 for place, count in enumerate(found)]


def write_cases(
    folder: Path, num_cases: int, seed: int, version: str, parts: Collection[str] = ()
) -> None:
    """Write `NNNN.json` for each case that is missing.

    `parts`: what the servers have besides: `drafts`, `groups`, `stages`, `ranks`, `offload` (with
    it `tiers`, or `several` of them, or `simple`, which may be `lazy`) and a role.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_cases):
        path = folder / f"{number:04d}.json"
        if not path.exists():
            key = f"vllm/{seed}/{number}"
            rng = random.Random(key)
            config = _with_parts(key, _draw_server(rng, key, version), parts)
            case = {"name": path.stem, "config": config, "workload": _draw_rows(rng, key, config)}
            path.write_text(json.dumps(case) + "\n", encoding="utf-8")


def _draw_server(rng: random.Random, key: str, version: str) -> Config:
    """Settings that the version has."""
    config = {"version": version, **draw_config(rng)}
    if has_limits(version) or not config["async_scheduling"]:
        most = [1, 1, 2, 3, 4] if has_limits(version) else [1, 1, 2]
        config["stages"] = random.Random(f"{key}/stages").choice(most)
    if has_limits(version):
        config |= draw_limits(random.Random(f"{key}/limits"), config)
    return config


def _with_parts(key: str, config: Config, parts: Collection[str]) -> Config:
    is_new = has_limits(config["version"])
    role = next((role for role in ROLES if role in parts), None)
    alone = "drafts" in parts or "offload" in parts or role is not None
    if "ranks" in parts or (alone and "stages" not in parts):
        config["stages"] = 1
    if "drafts" in parts:
        config = draw_speculation(random.Random(f"{key}/drafts"), config)
    if role is not None:
        config = draw_role(random.Random(f"{key}/role"), config, role, recomputes=is_new)
    if "groups" in parts:
        rng, offloads = random.Random(f"{key}/groups"), "offload" in parts
        config = draw_groups(rng, config, has_interval=is_new, offloads=offloads)
    if "offload" in parts:
        config = draw_offload(random.Random(f"{key}/offload"), config, is_new=is_new)
    if "simple" in parts:
        rng = random.Random(f"{key}/simple")
        config = draw_simple(rng, config, is_lazy="lazy" in parts)
    if "tiers" in parts:
        rng, several = random.Random(f"{key}/tiers"), "several" in parts
        config = draw_tiers(rng, config, several=several)
    if "ranks" in parts:
        config = draw_ranks(random.Random(f"{key}/ranks"), config)
    return config


def _draw_rows(rng: random.Random, key: str, config: Config) -> list[Row]:
    load, role = draw_load(rng, config), config.get("role")
    if role == "prefill" and not has_limits(config["version"]):
        # Such a version does not keep the KV of a request that ends with an end token.
        load = replace(load, endless=1.0)
    if has_limits(config["version"]) or "offload" in config:
        load = replace(load, **draw_patience(random.Random(f"{key}/patience")))
    rows = draw_rows(rng, config, load)
    if role is not None:
        times = random.Random(f"{key}/handovers")
        rows = draw_handovers(times, rows, *draw_times(times))
    return dealt(config, rows) if "ranks" in config else rows


if __name__ == "__main__":
    _folder, _number, _seed, _version, *_flags = sys.argv[1:]
    _parts = [flag.removeprefix("--") for flag in _flags]
    write_cases(Path(_folder), int(_number), int(_seed), _version, _parts)
