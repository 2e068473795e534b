"""Draws cases of models with sliding windows: `python oracle/generate_window.py FOLDER N SEED`.

`--drafts` behind it adds speculative decoding.
"""

import json
import random
import sys
from pathlib import Path

from generate import Config, draw_config, draw_workload
from generate_drafts import add_drafts


def draw_window(rng: random.Random, config: Config) -> Config:
    """The window's settings: a pool for layers with a window, from tight to as large as the other.

    Host memory and pipelines are left out: servetwin refuses windows with them.
    """
    page, pool = config["page_size"], config["kv_pool_tokens"]
    window = rng.choice([1, 7, 16, 31, 64, 127, 128, 255])
    ratio = rng.choice([0.3, 0.5, 0.8, 0.8, 1.0])
    return {
        "sliding_window": window,
        "swa_full_tokens_ratio": max(ratio, min(1.0, (2 * window + 4 * page) / pool)),
        "swa_eviction_interval": rng.choice([1, 8, 128, 128]),
    }


def write_cases(folder: Path, num_cases: int, seed: int, *, drafts: bool = False) -> None:
    """Write `NNNN.config.json` and `NNNN.workload.jsonl` for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_cases):
        rng = random.Random(f"window/{seed}/{number}")
        config = draw_config(rng)
        if drafts:
            add_drafts(random.Random(f"window/{seed}/{number}/drafts"), config)
        config |= draw_window(rng, config)
        if config["chunked_prefill_size"] is None:
            config["swa_full_tokens_ratio"] = 1.0
        rows = draw_workload(rng, config)
        (folder / f"{number:04d}.config.json").write_text(json.dumps(config, indent=1))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{number:04d}.workload.jsonl").write_text(text)


if __name__ == "__main__":
    with_drafts = sys.argv[4:] == ["--drafts"]
    write_cases(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), drafts=with_drafts)
