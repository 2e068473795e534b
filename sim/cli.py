"""The `simulate` command line. A command imports its modules when it runs, so help is quick."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line import (
    Backend,
    OutputFormat,
    RayAddress,
    Scenario,
    Set,
    may_run_user_code,
    new_app,
    out_option,
    renamed,
    run_app,
    use_one_blas_thread,
    with_tracebacks,
)
from sim.commands.answering import play_command, serve_command
from sim.commands.plan_options import with_question
from sim.commands.report_help import ReportHelp
from sim.families import RESULT_FORMATS
from sim.workload.traces.formats import FORMATS, TraceFormat

app = new_app("Simulate an LLM serving scheduler: scenarios in, latencies and decisions out.")

Jobs = Annotated[
    int | None, typer.Option(min=1, help="number of workers; default: one for each core")
]
Resume = Annotated[
    bool, typer.Option("--resume/--fresh", help="reuse the folder's points, or run all again")
]


if TYPE_CHECKING:
    from sim.commands.plan_question import Question

    FormatName = str
    TraceName = TraceFormat
else:
    TraceName = StrEnum("TraceName", {name: name for name in FORMATS})
    FormatName = StrEnum("FormatName", {name: name for name in RESULT_FORMATS})


@app.command("run")
@may_run_user_code
def run_command(
    file: Scenario,
    set_: Set = None,
    out: Annotated[Path | None, out_option("folder for summary, tables and plots")] = None,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the summary")
    ] = OutputFormat.TABLE,
    decisions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="write the decision log to this file (.jsonl or .jsonl.gz)"
        ),
    ] = None,
    requests: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="write a row for each request to this file (.csv or .parquet)"
        ),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write a trace for ui.perfetto.dev to this file"),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="write a page of all steps and requests over time to this file"
        ),
    ] = None,
    fast_forward: Annotated[
        bool,
        typer.Option(
            "--fast-forward/--no-fast-forward",
            help="compute runs of equal decode steps at once, or one by one: same results, slower",
        ),
    ] = True,
    check: Annotated[
        bool, typer.Option("--check", help="verify the invariants after every step")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="workers that share the replicas; default: 1, on Ray all cores"),
    ] = None,
    executor: Annotated[Backend, typer.Option(help="where workers run")] = Backend.PROCESS,
    ray_address: RayAddress = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="show the traceback of an error in your own policy")
    ] = False,
) -> None:
    """Run one scenario and print its summary."""
    from sim.commands.output import ResultFiles
    from sim.commands.run import Workers, run

    outputs = ResultFiles(
        directory=out,
        decisions=decisions,
        requests=requests,
        perfetto=perfetto,
        timeline=timeline,
    )
    with with_tracebacks(debug):
        run(
            file,
            overrides=set_ or (),
            outputs=outputs,
            json=format_ is OutputFormat.JSON,
            fast_forward=fast_forward,
            check=check,
            workers=Workers(jobs=jobs, ray=executor is Backend.RAY, ray_address=ray_address),
        )


@app.command("validate")
@may_run_user_code
def validate_command(file: Scenario, set_: Set = None) -> None:
    """Check a scenario and the files it names, without running it."""
    from sim.commands.validate import validate

    validate(file, set_ or ())


@app.command("workload")
@may_run_user_code
def workload_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="scenario file (YAML), or a trace")],
    set_: Set = None,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the table")
    ] = OutputFormat.TABLE,
    from_: Annotated[
        TraceName | None,
        typer.Option("--from", help="read FILE as a trace in this format; default: recognised"),
    ] = None,
    _trace: Annotated[str | None, renamed("--trace", "--from")] = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="tokens in a block of the cache; default: as in the trace, or 512"
        ),
    ] = None,
) -> None:
    """Describe traffic: rates, lengths, and the hit rate of an unlimited cache."""
    from sim.commands.workload import describe_workload

    json = format_ is OutputFormat.JSON
    describe_workload(file, set_ or (), json=json, block_size=block_size, trace=from_)


@app.command("import")
def import_command(
    out: Annotated[Path, out_option("folder for workload, measured run and scenario")],
    source: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="measured results: a file or a folder")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(metavar="LINE", help="in place of SOURCE: a benchmark client's command line"),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LINE",
            help="with --command: how the server is launched; repeated for prefill and decode"
            " servers, or others that are not alike",
        ),
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="GPU", help="with --command: its GPUs, such as h100_sxm")
    ] = None,
    from_: Annotated[
        FormatName | None,
        typer.Option("--from", help="format of the results; default: detected from their content"),
    ] = None,
    _format: Annotated[str | None, renamed("--format", "--from")] = None,
    template: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="take everything but the traffic from this scenario (YAML)"
        ),
    ] = None,
    line: Annotated[
        int | None, typer.Option(min=1, help="read this line of a file with one run on each line")
    ] = None,
    draw_arrivals: Annotated[
        int | None,
        typer.Option(
            metavar="SEED", min=0, help="draw random arrival times if the results have none"
        ),
    ] = None,
) -> None:
    """Turn measured results, or a benchmark's command lines, into a scenario to simulate."""
    from sim.commands.import_command import CommandLines, import_command_lines
    from sim.commands.import_results import ImportOptions, import_results
    from sim.workload.results.model import ReadOptions

    lines = CommandLines(command=command, servers=server or (), hardware=hardware, out=out)
    if source is None:
        import_command_lines(lines)
        return
    lines.check_unused()
    read = ReadOptions(line=line, draw_arrivals=draw_arrivals)
    import_results(source, ImportOptions(out=out, format=from_, template=template, read=read))


@app.command("compare")
@may_run_user_code
def compare_command(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="decision log")],
    other: Annotated[
        Path, typer.Argument(metavar="OTHER", help="decision log, or scenario (YAML) to replay on")
    ],
    set_: Set = None,
) -> None:
    """Find the first step at which two logs, or a log and a scenario, differ."""
    from sim.commands.compare import compare

    compare(log, other, set_ or ())


@app.command("timeline")
def timeline_command(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="decision log, or run log")],
    out: Annotated[
        Path | None, out_option("the page; default: LOG.html in the current folder", "FILE")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="also write a trace for ui.perfetto.dev to this file"),
    ] = None,
    begin: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, max=1e8, help="leave out what ends before"),
    ] = None,
    end: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, max=1e8, help="leave out what begins after"),
    ] = None,
) -> None:
    """Draw what servers and requests did over time: a page to zoom into."""
    from sim.commands.timeline import TimelineOptions, write_timelines

    options = TimelineOptions(out=out, perfetto=perfetto, begin_s=begin, end_s=end)
    write_timelines(log, options)


@app.command("sweep")
@may_run_user_code
def sweep_command(
    file: Scenario,
    set_: Set = None,
    jobs: Jobs = None,
    executor: Annotated[Backend, typer.Option(help="where points run")] = Backend.PROCESS,
    ray_address: RayAddress = None,
    out: Annotated[
        Path | None, out_option("folder for points and results; default: FILE-sweep")
    ] = None,
    resume: Resume = True,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the results")
    ] = OutputFormat.TABLE,
) -> None:
    """Run a scenario with every combination of values that its sweep section lists."""
    from sim.commands.sweep import SweepOptions, sweep

    options = SweepOptions(
        jobs=jobs,
        ray=executor is Backend.RAY,
        ray_address=ray_address,
        out=out,
        fresh=not resume,
        json=format_ is OutputFormat.JSON,
    )
    if code := sweep(file, set_ or (), options):
        raise typer.Exit(code)


@app.command("report", cls=ReportHelp)
def report_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="folder of a finished run, sweep or tune")
    ],
    out: Annotated[
        Path | None, out_option("folder for page and pictures; default: DIR/report")
    ] = None,
) -> None:
    """Draw a finished run, sweep or tune: pictures, and a page with everything in it."""
    from sim.commands.report import report

    report(folder, out)


@app.command("tune")
@may_run_user_code
def tune_command(
    file: Scenario,
    set_: Set = None,
    jobs: Jobs = None,
    out: Annotated[
        Path | None, out_option("folder for points and results; default: FILE-tune")
    ] = None,
    resume: Resume = True,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the results")
    ] = OutputFormat.TABLE,
) -> None:
    """Search the ranges in a scenario's tune section for the best settings under its SLO."""
    from sim.commands.output import SearchOptions
    from sim.commands.tune import tune

    options = SearchOptions(jobs=jobs, out=out, fresh=not resume, json=format_ is OutputFormat.JSON)
    if code := tune(file, set_ or (), options):
        raise typer.Exit(code)


@app.command("plan")
@may_run_user_code
@with_question
def plan_command(
    *,
    question: "Question",
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="scenario file (YAML); without it, options say what is wanted"
        ),
    ] = None,
    set_: Set = None,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        out_option("folder for points and results; default: FILE-plan, or plan-out without FILE"),
    ] = None,
    resume: Resume = True,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the results")
    ] = OutputFormat.TABLE,
) -> None:
    """Find the cheapest GPUs, parallelism and replicas that meet an SLO.

    With FILE: the SLO of a scenario with a plan section. Without it: of the traffic that options
    describe.
    """
    from sim.commands.output import SearchOptions
    from sim.commands.plan import plan

    options = SearchOptions(jobs=jobs, out=out, fresh=not resume, json=format_ is OutputFormat.JSON)
    if code := plan(file, set_ or (), options, question):
        raise typer.Exit(code)


@app.command("demo")
def demo_command(
    out: Annotated[Path, out_option("folder for the picture")] = Path("demo-out"),
) -> None:
    """Compare first come, first served with longest prefix match on built-in traffic."""
    from sim.commands.demo import demo

    demo(out)


app.command("play")(may_run_user_code(play_command))
app.command("serve")(may_run_user_code(serve_command))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    use_one_blas_thread()
    return run_app(app, "simulate", argv)


if __name__ == "__main__":
    sys.exit(main())
