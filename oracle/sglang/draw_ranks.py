"""Draws ranks of DP attention."""

import random

from oracle.sglang.draw_drafts import Config, is_pairs


def draw_ranks(rng: random.Random, config: Config) -> None:
    """Make a server the settings of each of two to four ranks.

    With DP attention SGLang has only drafters that read pairs of tokens. Ranks that pass their
    intervals by for themselves (`prefill_decode_interval_min_bs`) do not ask the prefill delayer
    at the same time: such servers hang.
    """
    config["ranks"] = rng.choice([2, 3, 4])
    drafts = config.get("speculation")
    if drafts and not is_pairs(drafts):
        drafts |= {"algorithm": "EAGLE", "num_steps": drafts["num_draft_tokens"] - 1}
    if config["prefill_delayer"]:
        config["prefill_decode_interval_min_bs"] = 0
    if config.get("store"):
        _share(config["store"], config["page_size"])


def _share(store: Config, page_size: int) -> None:
    """Make the times of the ranks' store latencies: how bandwidth is shared is no rule of SGLang's.

    Tokens take no time: all of host memory, less than half a nanosecond.
    """
    for direction in ("read", "write"):
        page_s = page_size * store[f"{direction}_s_per_token"]
        store[f"{direction}_latency_s"] += round(page_s, 9)
        store[f"{direction}_s_per_token"] = 1e-15
