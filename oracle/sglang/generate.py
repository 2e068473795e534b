"""Draws random cases from a seed: `python -m oracle.sglang.generate FOLDER N SEED [PART ...]`.

The parts of a server are drafts, window, states, host (memory), storage (below it), prefill or
decode (its role), stages and ranks. Without parts it is a plain server, which may have stages.
"""

import json
import sys
from pathlib import Path
from random import Random

from oracle.sglang.draw_drafts import add_drafts, press
from oracle.sglang.draw_memory import draw_host, draw_states, draw_storage, draw_window
from oracle.sglang.draw_plain import Config, Row, draw_config, draw_workload
from oracle.sglang.draw_ranks import draw_ranks
from oracle.sglang.draw_roles import ROLES, draw_decode, draw_prefill, draw_scripts
from oracle.sglang.parts import PARTS, refusal

_MEMORY = {"window": draw_window, "states": draw_states, "host": draw_host, "storage": draw_storage}
_SEED_NAME = {"states": "state"}


def draw_case(parts: set[str], name: str) -> tuple[Config, list[Row]]:
    """The settings and the load of a server with these parts."""
    if parts <= {"drafts"}:
        return _plain_case(name, drafts="drafts" in parts)
    kinds = [part for part in PARTS if part in parts and part != "drafts"]
    key = "/".join([*(_SEED_NAME.get(kind, kind) for kind in kinds), name])
    rng = Random(key)
    config = draw_config(rng)
    role = next((kind for kind in kinds if kind in ROLES), None)
    if "drafts" in parts:
        add_drafts(Random(f"{key}/drafts"), config)
        if "stages" in parts:
            config["speculation"]["algorithm"] = "EAGLE"
            config["speculation"]["num_steps"] = config["speculation"]["num_draft_tokens"] - 1
    for kind in kinds:
        if kind in _MEMORY:
            config |= _MEMORY[kind](rng, config)
    if role:
        config |= (draw_prefill if role == "prefill" else draw_decode)(rng, config, parts)
    if "stages" in parts:
        config |= _stages(rng.choice([2, 3, 4]))
    if "ranks" in parts:
        draw_ranks(rng, config)
        if parts == {"ranks"} and Random(f"{key}/memory").random() < 0.5:
            # Each rank has a part of the load alone, so few servers would be short of memory.
            press(Random(f"{key}/press"), config)
    rows = draw_workload(rng, config)
    return config, draw_scripts(rng, config, rows) if role else rows


def _plain_case(name: str, *, drafts: bool) -> tuple[Config, list[Row]]:
    """A server with one pool. Without drafts and overlap it may have a pipeline."""
    rng = Random(f"{name}/drafts" if drafts else name)
    config = draw_config(rng)
    if drafts:
        add_drafts(rng, config)
    elif not config["enable_overlap"]:
        num_stages = Random(f"{name}/stages").choice([1, 1, 1, 2, 3, 4])
        config |= _stages(num_stages) if num_stages > 1 else {"stages": 1}
    return config, draw_workload(rng, config)


def _stages(number: int) -> Config:
    """A pipeline: without overlap, and without waiting for rows."""
    return {
        "stages": number, "enable_overlap": False, "prefill_delayer": None,
        "min_free_slots_delay": 0,
    }  # fmt: skip


def write_cases(parts: set[str], folder: Path, num_cases: int, seed: int) -> None:
    """Write `NNNN.config.json` and `NNNN.workload.jsonl` for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_cases):
        config, rows = draw_case(parts, f"{seed}/{number}")
        (folder / f"{number:04d}.config.json").write_text(json.dumps(config, indent=1))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{number:04d}.workload.jsonl").write_text(text)


def main() -> None:
    folder, num_cases, seed, *parts = sys.argv[1:]
    if why := refusal(set(parts)):
        sys.exit(why)
    write_cases(set(parts), Path(folder), int(num_cases), int(seed))


if __name__ == "__main__":
    main()
