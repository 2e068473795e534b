"""Writes the traffic of a served run: a trace that sends it again, and a scenario with it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sim.core.atomic import atomic_path
from sim.core.request import Status
from sim.core.units import NS_PER_S
from sim.engine.records import RequestRecord
from sim.runlog.json_lines import open_text
from sim.scenario.file_keys import for_folder
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
    return {**for_folder(raw, base_dir, out), "workload": dict(TRAFFIC)}
