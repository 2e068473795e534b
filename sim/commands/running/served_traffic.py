"""Writes a served run: results, a trace that sends its traffic again, and a scenario with it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.output import print_line
from sim.commands.running.simulate import summary_of
from sim.core.files import write_text
from sim.core.messages import say
from sim.core.request import Status
from sim.core.units import NS_PER_S
from sim.engine.records import RequestRecord
from sim.report.run_folder import write_out_dir
from sim.runlog.json_lines import open_text
from sim.scenario.build import BuiltScenario
from sim.scenario.overrides import for_folder
from sim.scenario.schema import BESIDE_THE_RUN
from sim.scenario.strict_yaml import yaml_text
from sim.workload.traces.servetwin import servetwin_line

if TYPE_CHECKING:
    from sim.api.live_server import LiveServer

WORKLOAD, SCENARIO = "workload.jsonl.gz", "scenario.yaml"
TRAFFIC = {"kind": "trace", "format": "servetwin", "path": WORKLOAD}


def write_traffic(out: Path, answered: Iterable[tuple[RequestRecord, Sequence[int]]]) -> None:
    """Write requests, in order of arrival, and the tokens that each was answered, as a trace."""
    with open_text(out / WORKLOAD) as file:
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


def write_run(server: "LiveServer", built: BuiltScenario, out: Path) -> None:
    """Write the folder of the run, if it has requests."""
    log = server.log()
    if not len(log.requests.rid):
        say("servetwin: no request came, so no folder is written")
        return
    write_out_dir(log, summary_of(log, built.loaded.scenario), out, built.loaded.raw)
    loaded = built.loaded
    # With those that were refused: a router has given them their turn.
    write_traffic(out, server.answered())
    write_text(out / SCENARIO, yaml_text(with_traffic(dict(loaded.raw), loaded.base_dir, out)))
    print_line(f"{len(log.requests.rid):,} requests served: see {out}")
