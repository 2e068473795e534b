"""Writes what a served run was: its log, its traffic, and a scenario that sends it again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realrun.runner.warm_runner import WarmRunner
from realrun.server.run_recorder import RunRecorder, StepRecord
from realrun.server.serve_workload import run_meta
from realrun.tokens.drafting import DraftedSteps
from sim.commands.import_results import SCENARIO
from sim.commands.recorded_scenario import with_traffic, write_traffic
from sim.core.files import make_folder, remove_file, write_text
from sim.core.request import RequestSpec, Status
from sim.engine.records import RequestRecord
from sim.engine.server_config import ServerConfig
from sim.runlog.run_log_file import write_run_log
from sim.scenario.load import LoadedScenario, load_scenario_text
from sim.scenario.strict_yaml import yaml_text

LOG = "run.jsonl.gz"


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
        if record.status is Status.REJECTED and record.first_token_ns < 0:
            self.forget(record.spec.rid)
        else:
            super().over(record)


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
    raw["scheduler"] = settings
    text = yaml_text(with_traffic(raw, loaded.base_dir, out))
    return load_scenario_text(text, name=str(out / SCENARIO), base_dir=out)


def write_served_run(
    out: Path,
    served: LoadedScenario,
    config: ServerConfig,
    warm: WarmRunner,
    recorder: RunRecorder,
) -> None:
    """Write the files of a run, in place of those of an earlier one.

    The log is removed first and written last, so if it exists, all files are of one run.

    Args:
        out: the folder, which is made if its parent exists.
        served: the result of `served_scenario`.
        config: the settings of the server.
        warm: the runner that served.
        recorder: has all requests.

    Raises:
        InputError: a file cannot be written.
    """
    make_folder(out)
    remove_file(out / LOG)
    outputs = recorder.output_ids
    write_traffic(out, ((each, outputs.get(each.spec.rid, [])) for each in recorder.records()))
    write_text(out / SCENARIO, yaml_text(dict(served.raw)))
    meta: Mapping[str, object] = run_meta(served, config, warm, "served")
    write_run_log(out / LOG, meta, recorder.lines())
