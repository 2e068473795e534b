"""Writes the traffic of a served run: a trace that sends it again, and a scenario with it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sim.core.atomic import atomic_path
from sim.core.request import Status
from sim.core.units import NS_PER_S
from sim.engine.records import RequestRecord
from sim.runlog.json_lines import open_text
from sim.scenario.schema import BESIDE_THE_RUN
from sim.workload.traces.servetwin import servetwin_line

WORKLOAD, SCENARIO = "workload.jsonl.gz", "scenario.yaml"
TRAFFIC = {"kind": "trace", "format": "servetwin", "path": WORKLOAD}


def was_refused(record: RequestRecord) -> bool:
    """Whether the server did not take a request in."""
    return record.status is Status.REJECTED and record.first_token_ns < 0


def write_traffic(out: Path, answered: Iterable[tuple[RequestRecord, Sequence[int]]]) -> None:
    """Write the trace.

    Args:
        out: the folder, which exists.
        answered: requests in order of arrival, and the tokens that each was answered.

    Raises:
        InputError: the file cannot be written.
    """
    with (
        atomic_path(out / WORKLOAD) as beside,
        open_text(beside, compressed=True) as file,
    ):
        file.writelines(_line(record, output_ids) for record, output_ids in answered)


def _line(record: RequestRecord, output_ids: Sequence[int]) -> str:
    spec = record.spec
    has_finished = record.status is Status.FINISHED
    row: dict[str, object] = {
        "rid": spec.rid,
        "input_ids": spec.prompt.token_ids().tolist(),
        # Nobody knows how long an answer would have become that was broken off.
        "output_len": len(output_ids) if has_finished else spec.max_new_tokens,
        "max_new_tokens": spec.max_new_tokens,
        "ignore_eos": spec.ignore_eos,
    }
    if output_ids:
        row["output_ids"] = list(output_ids)
    if spec.priority is not None:
        row["priority"] = spec.priority
    if spec.gives_up_ns is not None and not has_finished:
        row["gives_up_after"] = spec.gives_up_ns / NS_PER_S
    return servetwin_line(spec.arrival_ns, row)


def with_traffic(raw: dict[str, Any], base_dir: Path, out: Path) -> dict[str, Any]:
    """A scenario with the trace as its workload, for the folder `out`; its paths are moved."""
    raw = {key: value for key, value in raw.items() if key not in BESIDE_THE_RUN}
    raw = {**_for_folder(raw, base_dir, out), "workload": dict(TRAFFIC)}
    if isinstance(pools := raw.get("pools"), dict):
        raw["pools"] = {name: _for_folder(pool, base_dir, out) for name, pool in pools.items()}
    return raw


def _for_folder(raw: dict[str, Any], base_dir: Path, out: Path) -> dict[str, Any]:
    """A scenario, or a server pool, for the folder `out`."""
    raw = dict(raw)
    for place in ("latency", "scheduler"):
        if isinstance(raw.get(place), dict):
            raw[place] = dict(raw[place])
    for section in (raw, raw.get("latency")):
        if isinstance(section, dict):
            _move_paths(section, base_dir, out)
    return raw


def _move_paths(section: dict[str, Any], base_dir: Path, out: Path) -> None:
    """Let paths of a section that start from the scenario's folder start from `out`."""
    for key in ("model", "path", "host"):
        path = section.get(key)
        if isinstance(path, str) and (base_dir / path).exists():
            section[key] = os.path.relpath((base_dir / path).resolve(), out.resolve())
