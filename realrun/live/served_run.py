"""Writes what a served run was: its log, its traffic, and a scenario that sends it again."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realrun.drafting import DraftedSteps
from realrun.run_recorder import RunRecorder, StepRecord
from realrun.serve import run_meta
from realrun.warm_runner import WarmRunner
from sim.core.atomic import atomic_path
from sim.core.files import write_text
from sim.core.request import RequestSpec, Status
from sim.core.units import NS_PER_S
from sim.engine.records import RequestRecord
from sim.engine.server_config import ServerConfig
from sim.runlog.json_lines import open_text
from sim.runlog.run_log_file import write_run_log
from sim.scenario.load import LoadedScenario, load_scenario_text
from sim.scenario.yaml_writer import yaml_text
from sim.workload.traces.servetwin import servetwin_line

LOG, WORKLOAD, SCENARIO = "run.jsonl.gz", "workload.jsonl.gz", "scenario.yaml"
_TRAFFIC = {"kind": "trace", "format": "servetwin", "path": WORKLOAD}


class Unrecorded(RunRecorder):
    """Keeps nothing."""

    def submitted(self, spec: RequestSpec) -> None:
        pass

    def over(self, record: RequestRecord) -> None:
        pass

    def answered(
        self, rid: str, output_ids: list[int], drafted: DraftedSteps | None = None
    ) -> None:
        pass

    def stepped(self, step: StepRecord) -> None:
        pass

    def token(self, rid: str, known_ns: int) -> None:
        pass


class ServedRecorder(RunRecorder):
    """Keeps everything but the requests that the server did not take in."""

    def over(self, record: RequestRecord) -> None:
        if _was_refused(record):
            self.forget(record.spec.rid)
        else:
            super().over(record)


def _was_refused(record: RequestRecord) -> bool:
    return record.status is Status.REJECTED and record.first_token_ns < 0


def _row(record: RequestRecord, output_ids: list[int]) -> str:
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
        row["output_ids"] = output_ids
    if spec.priority is not None:
        row["priority"] = spec.priority
    if spec.gives_up_ns is not None and not has_finished:
        row["gives_up_after"] = spec.gives_up_ns / NS_PER_S
    return servetwin_line(spec.arrival_ns, row)


def served_scenario(loaded: LoadedScenario, config: ServerConfig, out: Path) -> LoadedScenario:
    """The scenario as it was served, with its traffic; its file is not written yet.

    Args:
        loaded: the scenario.
        config: the settings of the server.
        out: the folder of the result.
    """
    section = loaded.scenario.scheduler
    raw: dict[str, Any] = dict(loaded.raw)
    settings = {**raw.get("scheduler", {})}
    key, longest = section.longest_request
    known = config.as_dict()
    if longest is None and key != section.pool_key:
        settings[key] = known[key]
    if section.pool_tokens is None:
        settings[section.pool_key] = known[section.pool_key.removesuffix("_override")]
    raw |= {"scheduler": settings, "workload": dict(_TRAFFIC)}
    for place in (raw, raw.get("latency")):
        _move_paths(place, loaded.base_dir, out)
    text = yaml_text(raw)
    return load_scenario_text(text, name=str(out / SCENARIO), base_dir=out)


def _move_paths(section: object, base_dir: Path, out: Path) -> None:
    """Let paths of a section that start from the scenario's folder start from `out`."""
    if isinstance(section, dict):
        for key in ("model", "path", "host"):
            path = section.get(key)
            if isinstance(path, str) and (base_dir / path).exists():
                section[key] = os.path.relpath((base_dir / path).resolve(), out.resolve())


def write_served_run(
    out: Path,
    served: LoadedScenario,
    config: ServerConfig,
    warm: WarmRunner,
    recorder: RunRecorder,
) -> None:
    """Write the files of a run.

    Args:
        out: the folder, which exists.
        served: the result of `served_scenario`.
        config: the settings of the server.
        warm: the runner that served.
        recorder: has all requests.

    Raises:
        InputError: a file cannot be written.
    """
    with (
        atomic_path(out / WORKLOAD) as beside,
        open_text(beside, compressed=True) as file,
    ):
        for record in recorder.records():
            file.write(_row(record, recorder.output_ids.get(record.spec.rid, [])))
    write_text(out / SCENARIO, yaml_text(dict(served.raw)))
    meta: Mapping[str, object] = run_meta(served, config, warm, "served")
    write_run_log(out / LOG, meta, recorder.lines())
