"""Draws cases of servers with host memory: `python oracle/generate_host.py FOLDER N SEED`."""

import json
import random
import sys
from pathlib import Path

from generate import Config, draw_config, draw_workload


def draw_host(rng: random.Random) -> Config:
    """Settings of host memory, from smaller than the pool to large, and of its link.

    A prefix cache is needed. Pipelines are left out: SGLang's harness has one forward stream.
    """
    return {
        "disable_radix_cache": False,
        "hicache_ratio": rng.choice([0.3, 0.8, 1.5, 2.0, 4.0]),
        "hicache_write_policy": rng.choice(
            ["write_through", "write_through", "write_through_selective", "write_back"]
        ),
        # Not a round number: a copy never ends at the very time of a step.
        "copy_s_per_token": rng.choice([1.0137e-7, 1.30731e-6, 2.1173e-5]),
    }


def write_cases(folder: Path, num_cases: int, seed: int) -> None:
    """Write `NNNN.config.json` and `NNNN.workload.jsonl` for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_cases):
        rng = random.Random(f"host/{seed}/{number}")
        config = draw_config(rng)
        config |= draw_host(rng)
        config["ignore_eos"] = False
        rows = draw_workload(rng, config)
        (folder / f"{number:04d}.config.json").write_text(json.dumps(config, indent=1))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{number:04d}.workload.jsonl").write_text(text)


if __name__ == "__main__":
    write_cases(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
