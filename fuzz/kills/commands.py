"""The commands that are killed, small instances of each, and what is promised of their files."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.scenarios import BASE, SYNTHETIC

# Stands in arguments for the address of a server that runs.
SERVER = "SERVER-URL"
_FEW = {**SYNTHETIC, "num_requests": 6}
_SWEEP = {
    "scheduler.schedule_policy": ["lpm", "fcfs"],
    "scheduler.max_running_requests": [4, 8, 16],
}
_PLAN = {
    "min_slo_attainment": 0.9,
    "rate_rps": 50,
    "max_replicas": 4,
    "gpus": {"slow": {"price_per_hour": 2}},
    "servers": [{"grid": {"scheduler.max_running_requests": [2, 16]}}],
}
_TUNE = {
    "objective": "goodput",
    "num_trials": 6,
    "seeds": [1],
    "ranges": {
        "scheduler.schedule_policy": {"kind": "choice", "values": ["lpm", "fcfs"]},
        "scheduler.max_running_requests": {"kind": "int", "min": 2, "max": 32, "step": 2},
    },
}
# Beside these the commands read files of `good_files`.
SCENARIOS = {
    "base.yaml": BASE,
    "served.yaml": {**BASE, "model": "tiny", "workload": _FEW},
    "sweep.yaml": {**BASE, "sweep": _SWEEP},
    "plan.yaml": {**BASE, "plan": _PLAN},
    "tune.yaml": {**BASE, "tune": _TUNE},
}
READ = ("sglang.json", "run.jsonl")


class KilledCommand(NamedTuple):
    """A command that is killed.

    Attributes:
        name: what it is called in the table.
        arguments: of `python -m`.
        results: patterns of the files that have the same bytes after every run that ends.
        same: of a folder, what is the same after every run that ends although times are measured.
        points: the folder of points, which are kept; empty: there is none.
        num_asked: requests that it is sent while it serves; after them it gets Ctrl-C.
        done: exit codes of a command that went on to its end.
        again: what is run after the kill; empty: the same command.
        needs: a file without which nothing is run after the kill.
        weight: how often it is drawn.
    """

    name: str
    arguments: str
    results: Sequence[str] = ()
    same: Callable[[Path], object] | None = None
    points: str = ""
    num_asked: int = 0
    done: Sequence[int] = (0,)
    again: str = ""
    needs: str = ""
    weight: int = 4


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of JSON lines that is packed."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def _sent(folder: Path) -> object:
    """What a replay sends; when, and what comes back, depends on the machine."""
    rows = lines_of(folder / "out/workload.jsonl.gz")
    return sorted((row["rid"], row["segments"], row["output_len"]) for row in rows)


def _served(folder: Path) -> object:
    """What a real run serves; its steps and times depend on the machine."""
    rows = lines_of(folder / "log.jsonl.gz")
    requests = [row for row in rows if row["kind"] == "request"]
    return sorted((row["rid"], row["status"], row["output_tokens"]) for row in requests)


def _replayed(folder: Path) -> object:
    """Whether the requests of a served run get the same times once more."""
    first, again = folder / "out/requests.csv", folder / "again.csv"
    return not (first.exists() and again.exists()) or first.read_bytes() == again.read_bytes()


COMMANDS = (
    KilledCommand(
        "simulate run",
        "sim run base.yaml --out out --decisions d.jsonl.gz --requests r.csv --timeline t.html"
        " --perfetto p.json",
        ("out/*.*", "out/plots/*", "d.jsonl.gz", "r.csv", "t.html", "p.json"),
    ),
    KilledCommand(
        "simulate sweep",
        "sim sweep sweep.yaml --out out --jobs 2",
        ("out/results.*",),
        points="out/points",
    ),
    KilledCommand(
        "simulate plan",
        "sim plan plan.yaml --out out --jobs 2",
        ("out/results.*",),
        points="out/points",
    ),
    KilledCommand(
        "simulate tune",
        "sim tune tune.yaml --out out --jobs 2",
        ("out/results.*",),
        points="out/points",
    ),
    KilledCommand("simulate import", "sim import sglang.json --out out", ("out/*",), weight=2),
    KilledCommand(
        "simulate serve",
        "sim serve base.yaml --port 0 --out out",
        same=_replayed,
        num_asked=6,
        again="sim run out/scenario.yaml --requests again.csv",
        needs="out/scenario.yaml",
    ),
    KilledCommand(
        "realrun replay",
        f"realrun replay base.yaml --url {SERVER} --out out",
        same=_sent,
        # 2: not one request was answered.
        done=(0, 2),
    ),
    KilledCommand("calibrate fit", "calibrate fit run.jsonl --out p.json", ("p.json",)),
    KilledCommand(
        "realrun run",
        "realrun run served.yaml --device cpu --log log.jsonl.gz",
        same=_served,
        weight=2,
    ),
)
