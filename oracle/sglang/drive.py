"""Runs cases on SGLang's scheduler: `python -m oracle.sglang.drive HARNESS_FOLDER CASES_FOLDER`.

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

from oracle.sglang.apart import apart_oracle, use_apart
from oracle.sglang.drafts import drafts_oracle, use_drafts
from oracle.sglang.host import host_oracle, use_host
from oracle.sglang.live import live_oracle
from oracle.sglang.pipeline import pipeline_oracle
from oracle.sglang.states import state_oracle, use_states
from oracle.sglang.windows import use_window, window_oracle

# A key of a configuration, what gives its server what it stands for, and the driver for it.
STAND_INS = (
    ("sliding_window", use_window, window_oracle),
    ("speculation", use_drafts, drafts_oracle),
    ("max_mamba_cache_size", use_states, state_oracle),
    ("hicache_write_policy", use_host, host_oracle),
    ("disaggregation_mode", use_apart, apart_oracle),
)


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
    for key, use, oracle in STAND_INS:
        if config.get(key):
            use(harness, config)
            make = oracle(make)
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
