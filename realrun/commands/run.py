"""`realrun run`: serves one scenario in real time, prints its summary and writes its run log."""

from collections.abc import Sequence
from pathlib import Path

from realrun.commands.unused import say_unused
from realrun.serve import Sampling, servable_workload, warm_server
from realrun.warm_runner import RunnerOptions
from sim.commands.output import print_line, print_summary
from sim.commands.run import slo_of
from sim.core.atomic import check_target
from sim.metrics.summary import summarise
from sim.report.progress import Progress
from sim.report.run_folder import summary_json
from sim.runlog.run_log_file import RecordedRun, load_run_log, write_run_log
from sim.scenario.load import load_scenario


def run(
    path: Path,
    *,
    overrides: Sequence[str],
    options: RunnerOptions,
    sampling: Sampling,
    log: Path | None,
    json: bool,
) -> None:
    """Serve the scenario file for real and print its summary.

    Raises:
        InputError: the scenario, a file that it names, the device or the log's path is wrong.
    """
    if log is not None:
        check_target(log)
    loaded = load_scenario(path, overrides)
    workload = servable_workload(loaded)
    say_unused(loaded)
    with warm_server(loaded, options) as server, Progress(workload.num_requests) as progress:
        done = server.serve(loaded, workload, sampling, progress.update)
    if log is not None:
        write_run_log(log, done.meta, done.lines)
    recorded = RecordedRun.of_lines(done.meta, done.lines)
    summary = summarise(load_run_log(recorded), slo_of(loaded.scenario))
    if json:
        print_line(summary_json(summary).rstrip())
    else:
        print_summary(summary)
