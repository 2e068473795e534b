"""Rebuilds a real run's settings, requests and arrival times from its log."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from sim.core.errors import InputError, KeyPath, dotted
from sim.engine.logged_decision import DECIDED_FIELDS
from sim.engine.server_config import ServerConfig
from sim.family.user_family import FamilyFolder
from sim.runlog import RunLog, TokenGaps
from sim.runlog.run_log_file import RecordedRun, load_run_log, read_run_log
from sim.scenario.build import scheduler_config_with_pool
from sim.scenario.schema import BESIDE_THE_RUN, Scenario
from sim.user.modules import user_code_wanted
from sim.user.objects import user_classes
from sim.vllm.config import with_copies_in_stream
from sim.workload.kinds.build import build_workload
from sim.workload.workload import Workload, every_request, listed

# The workload has the lengths of the outputs, or the tokens that the model answered clients with.
_KNOWN_OUTPUTS = ("forced", "served")


@dataclass(frozen=True, slots=True)
class RebuiltRun:
    """A real run, ready to be simulated.

    Attributes:
        recorded: its log.
        log: its log as columns.
        scenario: the scenario it served.
        config: settings of its server.
        workload: its requests, rejected ones included.
        skip: how many of the first requests, by arrival, are in no metric.
    """

    recorded: RecordedRun
    log: RunLog
    scenario: Scenario
    config: ServerConfig
    workload: Workload
    skip: int

    @property
    def name(self) -> str:
        """The log's file name."""
        return self.recorded.path.name

    @property
    def scenario_hash(self) -> str:
        """Hash of the scenario: equal for all runs of the same scenario."""
        return str(self.recorded.meta["scenario_hash"])

    @property
    def overlaps(self) -> bool:
        return self.config.overlaps

    def without_skipped(self, log: RunLog) -> RunLog:
        """A log of the run, real or simulated; without token gaps if requests are skipped.

        The log of a simulation does not say which gaps are those of skipped requests.
        """
        if not self.skip:
            return log
        none = np.empty(0, dtype=np.int64)
        return replace(log, token_gaps=TokenGaps(none, none))


def rebuild(path: Path, base_dir: Path | None = None, skip: int = 0) -> RebuiltRun:
    """Read a run log and build what it served.

    Args:
        path: the log of a real run.
        base_dir: what paths in its scenario are relative to; None: the log's folder.
        skip: how many of the first requests, by arrival, to leave out of all metrics.

    Raises:
        InputError: the log cannot be read or is not of a real run with known outputs, or its
            workload cannot be built or lacks a request of the log, or no request is left to count.
    """
    recorded = read_run_log(path)
    _check_source(recorded)
    _check_steps(recorded)
    _leave_out(recorded, skip)
    folder = base_dir or path.parent
    scenario = _scenario(recorded, folder)
    pool_tokens = recorded.meta.get("max_total_tokens")
    if type(pool_tokens) is not int or pool_tokens < 1:
        raise InputError(f"{path}: meta.max_total_tokens: must be the pool's size in tokens")
    run = RebuiltRun(
        recorded=recorded,
        log=load_run_log(recorded),
        scenario=scenario,
        config=with_copies_in_stream(
            scheduler_config_with_pool(
                scenario, pool_tokens, base_dir=folder, fail_at=partial(_error, path)
            )
        ),
        workload=_workload(recorded, scenario, folder),
        skip=skip,
    )
    return replace(run, log=run.without_skipped(run.log))


def _error(path: Path, key: KeyPath, reason: str) -> InputError:
    return InputError(f"{path}: meta.scenario.{dotted(key)}: {reason}")


def _check_source(recorded: RecordedRun) -> None:
    path, meta = recorded.path, recorded.meta
    source = meta["source"]
    if source != "realrun":
        raise InputError(f"{path}: meta.source: is the log of a {source}, not of a real run")
    if meta.get("sampling") not in _KNOWN_OUTPUTS:
        raise InputError(
            f"{path}: meta.sampling: {meta.get('sampling')!r}: only outputs that the scenario"
            " gives are the same in a simulation"
        )
    if "num_speculative_tokens" in meta:
        raise InputError(
            f"{path}: meta.num_speculative_tokens: runs with draft tokens are compared by"
            " simulate compare alone"
        )
    for key, kind in (("scenario", dict), ("scenario_hash", str)):
        if not isinstance(meta.get(key), kind):
            raise InputError(f"{path}: meta.{key}: missing or of the wrong type")


def _check_steps(recorded: RecordedRun) -> None:
    if not recorded.steps:
        raise InputError(f"{recorded.path}: has no steps")
    for number, step in enumerate(recorded.steps):
        where = f"{recorded.path}: step {number}"
        for key in DECIDED_FIELDS:
            if key not in step:
                raise InputError(f"{where}: {key}: missing")


def _leave_out(recorded: RecordedRun, num_requests: int) -> None:
    """Mark the first requests of the log as warm-up; `_workload` marks those that it makes."""
    if num_requests and num_requests >= len(recorded.requests):
        raise InputError(
            f"{recorded.path}: has {len(recorded.requests):,} requests: to skip {num_requests:,}"
            " leaves none"
        )
    for line in recorded.requests[:num_requests]:
        line["warm_up"] = True


def _scenario(recorded: RecordedRun, folder: Path) -> Scenario:
    """The scenario of a log. The log may be somebody else's: its classes need --user-code."""
    # Leave out the keys of a sweep or a search, which one run does not read.
    sections = recorded.meta["scenario"].items()
    text = json.dumps({key: value for key, value in sections if key not in BESIDE_THE_RUN})
    may_run = bool(user_code_wanted())
    try:
        scenario = Scenario.model_validate_json(
            text, context=FamilyFolder(folder) if may_run else None
        )
    except ValidationError as error:
        problem: Any = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(["meta.scenario", *map(str, problem["loc"])])
        reason = problem["msg"].removeprefix("Value error, ")
        raise InputError(f"{recorded.path}: {key}: {reason}") from None
    for path, name in user_classes(scenario):
        if not may_run:
            reason = f"{name} is Python code: it runs only with --user-code"
            raise _error(recorded.path, path, reason)
    return scenario


def _workload(recorded: RecordedRun, scenario: Scenario, base_dir: Path) -> Workload:
    path = recorded.path
    try:
        built = build_workload(scenario.workload, seed=scenario.seed, base_dir=base_dir)
    except InputError as error:
        raise InputError(f"{path}: its workload: {error}") from None
    known = {request.spec.rid: request for request in every_request(built)}
    requests = []
    for line in recorded.requests:
        rid = line["rid"]
        # Removed, because each request arrives only once.
        request = known.pop(rid, None)
        if request is None:
            raise InputError(
                f"{path}: request {rid!r}: is in the log twice, or not in the scenario"
            )
        sent = request.sent_at(line["arrival_ns"])
        sent.spec.warm_up = line.get("warm_up", False)
        requests.append(sent)
    return listed(requests)
