"""Runs cases on SGLang's scheduler: `python -m oracle.sglang.drive CASES_FOLDER`.

It needs SGLang's environment. SGLang is imported once. Each case runs in a forked child, because
SGLang's settings are global to a process.
"""

import json
import os
import random
import sys
import traceback
from pathlib import Path

from sim.installed.inside.sglang.packages import import_sglang
from sim.installed.inside.sglang.settings import DEFAULTS, environment


def decide(stem: Path) -> None:
    """Run one case and write its decisions."""
    from sglang.srt.managers import schedule_policy

    from oracle.sglang.run import run_case

    config = DEFAULTS | json.loads(Path(f"{stem}.config.json").read_text())
    lines = Path(f"{stem}.workload.jsonl").read_text().splitlines()
    os.environ |= environment(config)
    schedule_policy.CLIP_MAX_NEW_TOKENS = config["clip_max_new_tokens"]
    random.seed(config["random_seed"])
    steps, requests, error = run_case(config, [json.loads(line) for line in lines])
    rows = [{"kind": "step", **step} for step in steps]
    rows += [{"kind": "req", **request} for request in requests]
    rows += [{"kind": "error", "error": error}] if error else []
    beside = Path(f"{stem}.decisions.tmp")
    beside.write_text("".join(json.dumps(row) + "\n" for row in rows))
    beside.replace(f"{stem}.decisions.jsonl")


def main() -> None:
    import_sglang()
    import oracle.sglang.run  # noqa: F401 - once for all children

    for config in sorted(Path(sys.argv[1]).glob("*.config.json")):
        stem = config.parent / config.name.removesuffix(".config.json")
        if Path(f"{stem}.decisions.jsonl").exists():
            continue
        child = os.fork()
        if child == 0:
            try:
                decide(stem)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.waitpid(child, 0)
        print(f"\r{stem.name}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
