"""Draws cases of models with states: `python oracle/generate_state.py FOLDER N SEED`."""

import json
import random
import sys
from pathlib import Path

from generate import Config, draw_config, draw_workload


def draw_states(rng: random.Random, config: Config) -> Config:
    """Settings of the states' pool, from just large enough to ample.

    Without extra buffers pages have one token, and steps do not overlap. SGLang admits as many
    requests as have room for all of their states.
    """
    strategy = rng.choice(["no_buffer", "extra_buffer"])
    rows = config["max_running_requests"] = min(config["max_running_requests"], 16)
    changes: Config = {"mamba_radix_cache_strategy": strategy}
    if strategy == "no_buffer":
        changes |= {"page_size": 1, "enable_overlap": False, "prefill_delayer": None}
        most = 3
    else:
        most = 5 if config["enable_overlap"] else 4
        if config["chunked_prefill_size"]:
            changes["chunked_prefill_size"] = max(config["chunked_prefill_size"], 256)
    states = most * rows + rng.choice([0, 0, 1, 3, 8, 40, 200])
    changes["max_mamba_cache_size"] = states
    changes["mamba_track_interval"] = max(rng.choice([64, 128, 256]), config["page_size"])
    # Without a prefix cache there is one state for each running request, and nothing to decide.
    return changes | {"disable_radix_cache": False, "ignore_eos": False}


def write_cases(folder: Path, num_cases: int, seed: int) -> None:
    """Write `NNNN.config.json` and `NNNN.workload.jsonl` for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_cases):
        rng = random.Random(f"state/{seed}/{number}")
        config = draw_config(rng)
        config |= draw_states(rng, config)
        rows = draw_workload(rng, config)
        (folder / f"{number:04d}.config.json").write_text(json.dumps(config, indent=1))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{number:04d}.workload.jsonl").write_text(text)


if __name__ == "__main__":
    write_cases(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
