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
from typing import Any

from pipeline_sglang import pipeline_oracle


def load_harness(folder: Path) -> ModuleType:
    """The reference data's `sglang_oracle.py`."""
    spec = importlib.util.spec_from_file_location("sglang_oracle", folder / "sglang_oracle.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder}: no sglang_oracle.py")
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    return harness


def exact_oracle(harness: ModuleType) -> type:
    """The harness's driver, with an exact count of tokens in flight under overlap.

    The harness reduces a request's count by one when a batch with the request is done, even if the
    batch had a chunk of it that samples nothing. The last chunk is launched before that. So in the
    harness a prompt in several chunks gets its end token one step late.
    """

    class ExactOracle(harness.Oracle):
        sampled_last: tuple[str, ...] = ()

        def launch(self, batch: Any) -> Any:
            if self.cfg["enable_overlap"]:
                in_flight = self.sampled_last if self.s.result_queue else ()
                self.inflight = dict.fromkeys(in_flight, 1)
            result = super().launch(batch)
            chunked = self.s.chunked_req
            self.sampled_last = tuple(r.rid for r in batch.reqs if r is not chunked)
            return result

    return ExactOracle


def decide(harness: ModuleType, stem: Path) -> None:
    """Run one case and write its decisions."""
    config = harness.DEFAULT_CONFIG | json.loads(Path(f"{stem}.config.json").read_text())
    lines = Path(f"{stem}.workload.jsonl").read_text().splitlines()
    harness.import_sglang(config)
    from sglang.srt.managers import schedule_policy

    schedule_policy.CLIP_MAX_NEW_TOKENS = config["clip_max_new_tokens"]
    random.seed(config["random_seed"])
    oracle = pipeline_oracle if config.get("stages", 1) > 1 else exact_oracle
    steps, requests = oracle(harness)(config, [json.loads(line) for line in lines]).run()
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
