"""Runs cases on SGLang's scheduler: `python oracle/drive_sglang.py HARNESS_FOLDER CASES_FOLDER`.

It needs SGLang's environment. SGLang is imported once. Each case runs in a forked child, because
SGLang's settings are global to a process.
"""

import importlib.util
import json
import os
import random
import sys
import traceback
from pathlib import Path
from types import ModuleType

from drafts_sglang import drafts_oracle, use_drafts
from host_sglang import host_oracle, use_host
from live_sglang import live_oracle
from pipeline_sglang import pipeline_oracle
from state_sglang import state_oracle, use_states
from window_sglang import use_window, window_oracle


def load_harness(folder: Path) -> ModuleType:
    """The reference data's `sglang_oracle.py`."""
    spec = importlib.util.spec_from_file_location("sglang_oracle", folder / "sglang_oracle.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder}: no sglang_oracle.py")
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    return harness


def decide(harness: ModuleType, stem: Path) -> None:
    """Run one case and write its decisions."""
    config = harness.DEFAULT_CONFIG | json.loads(Path(f"{stem}.config.json").read_text())
    lines = Path(f"{stem}.workload.jsonl").read_text().splitlines()
    harness.import_sglang(config)
    from sglang.srt.managers import schedule_policy

    schedule_policy.CLIP_MAX_NEW_TOKENS = config["clip_max_new_tokens"]
    random.seed(config["random_seed"])
    make = live_oracle(harness)
    if config.get("sliding_window"):
        use_window(harness, config)
        make = window_oracle(make)
    if config.get("speculation"):
        use_drafts(harness, config)
        make = drafts_oracle(make)
    if config.get("max_mamba_cache_size"):
        use_states(harness, config)
        make = state_oracle(make)
    if config.get("hicache_write_policy"):
        use_host(harness, config)
        make = host_oracle(make)
    if config.get("stages", 1) > 1:
        make = pipeline_oracle(make)
    steps, requests = make(config, [json.loads(line) for line in lines]).run()
    rows = [{"kind": "step", **step} for step in steps]
    rows += [{"kind": "req", **request} for request in requests]
    beside = Path(f"{stem}.decisions.tmp")
    beside.write_text("".join(json.dumps(row) + "\n" for row in rows))
    beside.replace(f"{stem}.decisions.jsonl")


def main() -> None:
    harness = load_harness(Path(sys.argv[1]))
    harness.import_sglang(harness.DEFAULT_CONFIG)
    for config in sorted(Path(sys.argv[2]).glob("*.config.json")):
        stem = config.parent / config.name.removesuffix(".config.json")
        if Path(f"{stem}.decisions.jsonl").exists():
            continue
        child = os.fork()
        if child == 0:
            try:
                decide(harness, stem)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.waitpid(child, 0)
        print(f"\r{stem.name}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
