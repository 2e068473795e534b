"""A run of the logs of real servers: of one, or of each of a fleet's servers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from calibrate.explain.run import Run, RunPool
from calibrate.explain.setup import PoolSetup, Setup
from calibrate.explain.times import RecordedTimes, StepTimes
from calibrate.rebuild import RebuiltRun, rebuild
from sim.core.errors import InputError
from sim.core.packed import Line, numbered_lines
from sim.core.request import RequestSpec
from sim.des.routers.router import RoundRobin, RoutedReplica, Router
from sim.des.servers import Servers
from sim.engine.server_config import BOTH
from sim.runlog.run_log_file import load_run_log
from sim.workload.workload import ScriptedRequest, every_request, listed


class AsRecorded:
    """Sends each request to the server that had it, and requests of others to all in turn."""

    looks_at_loads = False

    def __init__(self, served_by: Mapping[str, int]) -> None:
        self._served_by, self._others = served_by, RoundRobin()

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        server = self._served_by.get(spec.rid)
        return self._others.choose(spec, replicas) if server is None else server % len(replicas)


def logs_in(folder: Path) -> list[Path]:
    """The run logs in a folder and in the folders in it, such as `realrun serve --out` writes.

    Raises:
        InputError: there is none.
    """
    names = ("*.jsonl", "*.jsonl.gz", "*/*.jsonl", "*/*.jsonl.gz")
    found = sorted(path for name in names for path in folder.glob(name) if _is_run_log(path))
    if not found:
        raise InputError(f"{folder}: has no run log (*.jsonl, *.jsonl.gz)")
    return found


def _is_run_log(path: Path) -> bool:
    with suppress(InputError):
        return next(iter(numbered_lines(path)), (0, {}))[1].get("kind") == "meta"
    return False


def run_of_logs(paths: Sequence[Path], base_dir: Path | None = None, skip: int = 0) -> Run:
    """Read the log of a real run, or those of the servers of a fleet.

    Args:
        paths: the log of each server.
        base_dir: what paths in their scenarios are relative to; None: each log's folder.
        skip: how many of the first requests of each log are in no figure.

    Raises:
        InputError: a log is bad, or is of several servers, or the servers are not alike.
    """
    logs = [rebuild(path, base_dir, skip) for path in paths]
    for log in logs:
        _check_one_server(log, logs[0])
    recordings = [RecordedTimes(log.recorded.steps, overlaps=log.overlaps) for log in logs]

    def make(number: int) -> StepTimes:
        return recordings[number % len(recordings)].from_the_beginning()

    smallest = min(logs, key=_pool_tokens)
    setup = PoolSetup(
        servers=Servers(smallest.config, ()),
        num_servers=len(logs),
        prefill=make,
        decode=make,
        gaps=make,
        stalls=[times.stalls() for times in recordings],
    )
    whole = logs[0] if len(logs) == 1 else _joined(logs)
    served_by = {}
    router: Callable[[], Router] = RoundRobin
    if len(logs) > 1:
        served_by = {str(line["rid"]): int(line["replica"]) for line in whole.recorded.requests}
        router = partial(AsRecorded, served_by)
    pool = RunPool(
        scenario=whole.scenario,
        pool_tokens=_pool_tokens(smallest),
        base_dir=base_dir or paths[0].parent,
        setup=setup,
        steps=whole.recorded.steps,
    )
    return Run(
        name=whole.name,
        scenario=whole.scenario,
        setup=Setup(workload=whole.workload, pools={"": setup}, routers={BOTH: router}),
        pools={"": pool},
        log=whole.log,
        steps=pool.steps,
        served_by=served_by,
    )


def _pool_tokens(log: RebuiltRun) -> int:
    return int(log.recorded.meta["max_total_tokens"])


def _check_one_server(log: RebuiltRun, first: RebuiltRun) -> None:
    path = log.recorded.path
    if len({step["replica"] for step in log.recorded.steps}) > 1:
        raise InputError(f"{path}: has several servers; give each server's own log, in a folder")
    # Sizes of KV pools come out a little different on equal servers.
    if log.scenario.scheduler != first.scenario.scheduler:
        raise InputError(
            f"{path}: its scheduler has other settings than that of {first.recorded.path}; the"
            " servers of a fleet must be alike"
        )


def _joined(logs: Sequence[RebuiltRun]) -> RebuiltRun:
    """The logs as one. The time of each counts from its own beginning.

    Names that several logs have get the number of their server before them.
    """
    counts = Counter(line["rid"] for log in logs for line in log.recorded.requests)
    is_shared = any(count > 1 for count in counts.values())
    requests: list[ScriptedRequest] = []
    lines: list[Line] = []
    for server, log in enumerate(logs):
        before = f"{server}:" if is_shared else ""
        lines += (
            {**line, "rid": f"{before}{line['rid']}", "replica": server}
            for line in log.recorded.requests
        )
        for request in every_request(log.workload):
            request.spec.rid = f"{before}{request.spec.rid}"
            requests.append(request)
    steps = [
        {**step, "replica": server}
        for server, log in enumerate(logs)
        for step in log.recorded.steps
    ]
    first = logs[0]
    recorded = replace(
        first.recorded,
        path=first.recorded.path.parent,
        steps=steps,
        requests=sorted(lines, key=lambda line: line["arrival_ns"]),
    )
    columns = first.without_skipped(load_run_log(recorded))
    workload = listed(sorted(requests, key=lambda request: request.spec.arrival_ns))
    return replace(first, recorded=recorded, log=columns, workload=workload)
