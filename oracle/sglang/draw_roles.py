"""Draws prefill servers and decode servers, and a script for the other server of each request."""

import random

from oracle.sglang.draw_drafts import is_pairs
from oracle.sglang.draw_plain import Config, Row

ROLES = ("prefill", "decode")

# What these servers' loops do not read, or what has cases of its own.
_UNUSED = {
    "prefill_decode_interval": 0,
    "prefill_delayer": None,
    "waiting_timeout_s": None,
    "running_timeout_s": None,
    "ignore_eos": False,
}


def draw_prefill(_: random.Random, config: Config, __: set[str]) -> Config:
    # An idle server shuffles its queue as often as it can.
    policy = "lpm" if config["policy"] == "random" else config["policy"]
    delayer = {"prefill_delayer": config["prefill_delayer"]}
    return _UNUSED | delayer | {"disaggregation_mode": "prefill", "policy": policy}


def draw_decode(rng: random.Random, config: Config, parts: set[str]) -> Config:
    """With a radix cache, SGLang drafts pairs of tokens only; host memory is below this cache."""
    by_priority = config["enable_priority_scheduling"]
    drafts = config.get("speculation")
    changes = _UNUSED | {
        "disaggregation_mode": "decode",
        "policy": config["policy"] if by_priority else "fcfs",
        "disable_radix_cache": rng.random() < 0.75 or bool(drafts and not is_pairs(drafts)),
        "num_reserved_decode_tokens": rng.choice([0, 8, 32, 100, 512]),
        "disaggregation_decode_extra_slots": rng.choice([None, None, 0, 1, 5]),
        "disaggregation_decode_polling_interval": rng.choice([1, 1, 1, 2, 5]),
        "disaggregation_decode_retraction_backup": "cpu_tensor",
    }
    if "host" in parts:
        changes["disable_radix_cache"] = False
        # Some loads take longer than the transfers beside them.
        copy_s = config["copy_s_per_token"]
        changes["copy_s_per_token"] = rng.choice([copy_s, copy_s, 3.07313e-4])
        if drafts and not is_pairs(drafts):
            pairs = {"algorithm": "EAGLE", "num_steps": drafts["num_draft_tokens"] - 1}
            changes["speculation"] = drafts | pairs
    preempts = by_priority and not config["disable_priority_preemption"]
    if changes["disable_radix_cache"] and not preempts and "states" not in parts:
        changes |= draw_backup(rng)
    return changes


def draw_backup(rng: random.Random) -> Config:
    """Where the KV of retracted requests goes, on servers that may have a host pool."""
    backup = rng.choice(["host_pool", "host_pool", "host_pool", "cpu_tensor", "none"])
    ratio = rng.choice([None, 0.01, 0.05, 0.2]) if backup == "host_pool" else None
    return {"disaggregation_decode_retraction_backup": backup, "hicache_ratio": ratio}


def draw_scripts(rng: random.Random, config: Config, rows: list[Row]) -> list[Row]:
    """Give each request what happens at the other end; some transfers fail."""
    if config["disaggregation_mode"] == "prefill":
        return _prefill_scripts(rng, config, rows)
    transfer_s = rng.choice([0.0005, 0.01, 0.1])
    failing = rng.choice([0, 0, 0.08])
    for row in rows:
        row["partner"] = {"transfer": _time_s(rng, transfer_s)}
        if rng.random() < failing:
            row["partner"]["fails_after"] = _time_s(rng, 2 * transfer_s)
    return _patient(rng, rows)


def _prefill_scripts(rng: random.Random, config: Config, rows: list[Row]) -> list[Row]:
    ready_s, transfer_s = rng.choice([0.0005, 0.01, 0.1]), rng.choice([0.0005, 0.01, 0.1])
    reuse, failing = rng.choice([0, 0, 0.4]), rng.choice([0, 0, 0.08])
    for row in rows:
        num_pages = sum(n for _, n in row["segments"]) // config["page_size"]
        cached = rng.randint(0, num_pages) if rng.random() < reuse else 0
        row["partner"] = {
            "ready_after": _time_s(rng, ready_s),
            "cached": cached * config["page_size"],
            "transfer": _time_s(rng, transfer_s),
        }
        if rng.random() < failing:
            row["partner"]["fails_after"] = _time_s(rng, ready_s + transfer_s)
    return _patient(rng, rows)


def _time_s(rng: random.Random, mean_s: float) -> float:
    """Never 0: nothing happens at the other end at once."""
    return round(rng.expovariate(1 / mean_s), 9) + 1e-9


def _patient(rng: random.Random, rows: list[Row]) -> list[Row]:
    """In three of four cases no client gives up."""
    if rng.random() < 0.75:
        for row in rows:
            row.pop("gives_up_after", None)
    return rows
