"""Draws random cases from a seed: `python -m oracle.sglang.generate KIND FOLDER N SEED [--drafts]`.

KIND is plain, window, host, state, prefill or decode. `--drafts` gives servers of the first two
speculative decoding.
"""

import json
import sys
from pathlib import Path
from random import Random

from oracle.sglang.draw_apart import draw_decode, draw_prefill
from oracle.sglang.draw_drafts import add_drafts
from oracle.sglang.draw_memory import draw_host, draw_state, draw_window
from oracle.sglang.draw_plain import Config, Row, draw_config, draw_workload

_MEMORY = {"window": draw_window, "host": draw_host, "state": draw_state}
_APART = {"prefill": draw_prefill, "decode": draw_decode}
_WITH_DRAFTS = ("plain", "window")


def plain_case(name: str, *, drafts: bool) -> tuple[Config, list[Row]]:
    """A server with one pool. Without drafts and overlap it may have a pipeline."""
    rng = Random(f"{name}/drafts" if drafts else name)
    config = draw_config(rng)
    if drafts:
        add_drafts(rng, config)
    elif not config["enable_overlap"]:
        config["stages"] = Random(f"{name}/stages").choice([1, 1, 1, 2, 3, 4])
        if config["stages"] > 1:
            config["min_free_slots_delay"] = 0
    return config, draw_workload(rng, config)


def case_with_memory(kind: str, name: str, *, drafts: bool) -> tuple[Config, list[Row]]:
    rng = Random(f"{kind}/{name}")
    config = draw_config(rng)
    if drafts:
        add_drafts(Random(f"{kind}/{name}/drafts"), config)
    config |= _MEMORY[kind](rng, config)
    return config, draw_workload(rng, config)


def write_cases(kind: str, folder: Path, num_cases: int, seed: int, *, drafts: bool) -> None:
    """Write `NNNN.config.json` and `NNNN.workload.jsonl` for each case."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_cases):
        name = f"{seed}/{number}"
        if kind == "plain":
            config, rows = plain_case(name, drafts=drafts)
        elif kind in _APART:
            config, rows = _APART[kind](Random(f"{kind}/{name}"))
        else:
            config, rows = case_with_memory(kind, name, drafts=drafts)
        (folder / f"{number:04d}.config.json").write_text(json.dumps(config, indent=1))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{number:04d}.workload.jsonl").write_text(text)


def main() -> None:
    kind, folder, num_cases, seed, *rest = sys.argv[1:]
    drafts = rest == ["--drafts"]
    known = _WITH_DRAFTS if drafts else ("plain", *_MEMORY, *_APART)
    if kind not in known:
        sys.exit(f"{kind}: not one of {', '.join(known)}")
    write_cases(kind, Path(folder), int(num_cases), int(seed), drafts=drafts)


if __name__ == "__main__":
    main()
