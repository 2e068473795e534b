"""Draws speculative decoding."""

import random

from oracle.sglang.draw_plain import Config

_PAIRS = ("EAGLE", "EAGLE3", "NEXTN")


def is_pairs(drafts: Config) -> bool:
    """Whether the drafter reads pairs of tokens, which SGLang's tree then keeps."""
    return drafts["algorithm"] in _PAIRS


def draw_speculation(rng: random.Random) -> Config:
    """One to five drafts in a step; n-grams may have more passes than tokens to verify."""
    algorithm = rng.choice([*_PAIRS, "STANDALONE", "NGRAM", "NGRAM"])
    num_drafts = rng.randint(1, 5)
    num_steps = num_drafts
    if algorithm == "NGRAM":
        num_steps = rng.choice([num_drafts + 1, rng.randint(1, 9)])
    mean = rng.choice([0.0, 0.3, 0.6, 0.8, 0.95, 1.0])
    spread = rng.choice([0.0, 0.0, 0.2])
    shares = [min(max(mean + rng.uniform(-spread, spread), 0), 1) for _ in range(num_drafts)]
    return {
        "algorithm": algorithm,
        "num_steps": num_steps,
        "num_draft_tokens": num_drafts + 1,
        "by_position": [round(share, 3) for share in shares],
    }


def add_drafts(rng: random.Random, config: Config) -> None:
    """Give a server speculative decoding; half of the servers are short of memory, too."""
    config["speculation"] = draw_speculation(rng)
    if not is_pairs(config["speculation"]):
        config["enable_mixed_chunk"] = False
    if rng.random() < 0.5:
        press(rng, config)
    # So that no sum of steps is a whole microsecond, as the times between arrivals are.
    config["latency"]["a"] += 3.7e-7


def press(rng: random.Random, config: Config) -> None:
    """Change a server's settings so that it admits too much, and retracts."""
    config |= {
        "kv_pool_tokens": config["page_size"]
        * max(24, rng.choice([700, 1500, 3000]) // config["page_size"]),
        "schedule_conservativeness": 0.1,
        "clip_max_new_tokens": rng.choice([4, 16, 64]),
        "max_running_requests": rng.choice([8, 16, 32]),
        "max_queued_requests": None,
        "waiting_timeout_s": None,
        "running_timeout_s": None,
        "context_len": 131072,
    }
