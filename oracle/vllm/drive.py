"""Runs cases on vLLM's scheduler: `python -m oracle.vllm.drive CASES_FOLDER`.

It needs vLLM's environment. A case is one JSON file; its `decisions` are added to the file.
"""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sim.installed.inside.placeholders import install_placeholders

Line = dict[str, Any]


def undecided(folder: Path) -> Iterator[tuple[Path, Line]]:
    """The cases without decisions; fractions are Decimals."""
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        if "decisions" not in case:
            yield path, case


def decide(oracle: type, path: Path, case: Line) -> None:
    """Run one case and write it again, with its decisions."""
    with TemporaryDirectory() as root_dir:  # of tiers, which write their settings there
        decisions = oracle(case["config"] | {"root_dir": root_dir}, case["workload"]).run()
    whole = json.loads(path.read_text(encoding="utf-8")) | {"decisions": decisions}
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(whole, separators=(",", ":")) + "\n", encoding="utf-8")
    beside.replace(path)


def _oracle_of(config: Line) -> type:
    """Ranks are those of newer versions alone."""
    if "ranks" in config:
        from oracle.vllm.ranks import Ranks

        return Ranks
    from oracle.vllm.oracle import Oracle

    return Oracle


def main() -> int:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    install_placeholders()
    failed = False
    for path, case in undecided(Path(sys.argv[1])):
        try:
            decide(_oracle_of(case["config"]), path, case)
        except Exception:
            failed = True
            traceback.print_exc()
        print(f"\r{path.stem}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
