"""`realrun run`: serves one scenario in real time, prints its summary and writes its run log."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from realrun.commands.options import AttentionChoice, AttentionOption, Device, DType, Graphs
from sim.command_line import (
    OutputFormat,
    Scenario,
    Set,
    command,
    file_option,
    format_option,
)


class TokenSource(StrEnum):
    """Where output tokens come from."""

    FORCED = "forced"
    GREEDY = "greedy"


@command(user_code=True)
def run(
    *,
    file: Scenario,
    set_: Set = None,
    log: Annotated[
        Path | None,
        file_option("file of the run log (.jsonl or .jsonl.gz)"),
    ] = None,
    format_: Annotated[OutputFormat, format_option("summary")] = OutputFormat.TABLE,
    sampling: Annotated[
        TokenSource,
        typer.Option(help="forced: the workload's scripted outputs; greedy: the model's"),
    ] = TokenSource.FORCED,
    device: Device = "auto",
    dtype: DType = "auto",
    attention: AttentionOption = AttentionChoice.AUTO,
    graphs: Graphs = True,
) -> None:
    """Serve one scenario in real time and print its summary."""
    from realrun.runner.warm_runner import RunnerOptions
    from realrun.server.servable import say_unused, servable_workload
    from realrun.server.serve_workload import warm_server
    from sim.commands.output import check_writable, print_line, print_summary
    from sim.commands.running.simulate import summary_of
    from sim.core.files import check_target, refuse_input
    from sim.report.progress import Progress
    from sim.report.run_folder import summary_json
    from sim.runlog.run_log_file import RecordedRun, load_run_log, write_run_log
    from sim.scenario.load import load_scenario

    if log is not None:
        check_target(log)
        check_writable(log, log.parent)
    loaded = load_scenario(file, set_ or ())
    workload = servable_workload(loaded)
    if log is not None:
        # Now that everything is read, and before a model is loaded.
        refuse_input(log)
    say_unused(loaded)
    options = RunnerOptions(device=device, dtype=dtype, attention=attention.value, graphs=graphs)
    with warm_server(loaded, options) as server, Progress(workload.num_requests) as progress:
        done = server.serve(loaded, workload, sampling.value, progress.update)
    if log is not None:
        write_run_log(log, done.meta, done.lines)
    recorded = RecordedRun.of_lines(done.meta, done.lines)
    summary = summary_of(load_run_log(recorded), loaded.scenario)
    if format_ is OutputFormat.JSON:
        print_line(summary_json(summary).rstrip())
    else:
        print_summary(summary)
