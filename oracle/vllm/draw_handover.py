"""Draws prefill and decode servers: when KV is there or has left, and which loads fail."""

import random

from oracle.vllm.load import Config, Row

ROLES = "prefill", "decode"


def draw_role(rng: random.Random, config: Config, role: str, *, recomputes: bool) -> Config:
    """The same server with a role.

    `recomputes`: what becomes of a request whose KV is lost is simulated as this version does it,
    and its decode servers cannot wait for ever under policy `priority`.
    """
    policies = ["fail", "recompute", "recompute"] if recomputes else ["fail"]
    queue = config["policy"] if recomputes or role == "prefill" else "fcfs"
    return config | {
        "policy": queue,
        "role": role,
        "kv_load_failure_policy": rng.choice(policies),
    }


def draw_times(rng: random.Random) -> tuple[float, float]:
    """The mean time of a case's transfers, and the share of them that fails."""
    return rng.choice([1e-4, 0.003, 0.02, 0.3]), rng.choice([0.0, 0.0, 0.1, 0.5])


def draw_handovers(rng: random.Random, rows: list[Row], mean_s: float, failing: float) -> list[Row]:
    """The rows of a workload, each with the time of its transfer."""
    # To the nanosecond: no transfer ends just when a step ends.
    return [
        row
        | {
            "handover": {
                "after_s": round(max(rng.expovariate(1 / mean_s), 1e-6), 9),
                "fails": rng.random() < failing,
            }
        }
        for row in rows
    ]
