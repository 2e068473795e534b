"""The `simulate` command line: what it takes, and how it ends.

stdout carries results, stderr diagnostics. Exit codes: 0 done, 2 bad input (one line on stderr),
1 our fault, 130 interrupted. Commands import what they need when they run: help is quick.
"""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from sim.core.errors import InputError

app = typer.Typer(
    help="Simulate an LLM serving scheduler: scenarios in, latencies and decisions out.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_INTERRUPTED = 130

Scenario = Annotated[Path, typer.Argument(metavar="FILE", help="scenario file (YAML)")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="override a key; may be repeated"),
]


class Format(StrEnum):
    """How a summary is printed."""

    TABLE = "table"
    JSON = "json"


@app.command("run")
def run_command(
    file: Scenario,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="folder for summary, tables and plots")] = None,
    format_: Annotated[Format, typer.Option("--format", help="of the summary")] = Format.TABLE,
    decisions: Annotated[
        Path | None, typer.Option(help="write the decision log there (.jsonl or .jsonl.gz)")
    ] = None,
    requests: Annotated[
        Path | None, typer.Option(help="write one row a request there (.csv or .parquet)")
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="write a timeline for ui.perfetto.dev there")
    ] = None,
    fast_forward: Annotated[
        bool, typer.Option("--fast-forward/--no-fast-forward", help="same results, slower")
    ] = True,
    check: Annotated[
        bool, typer.Option("--check", help="verify every invariant at every step")
    ] = False,
) -> None:
    """Run one scenario and print its summary."""
    from sim.commands.result_files import ResultFiles
    from sim.commands.run import run

    outputs = ResultFiles(directory=out, decisions=decisions, requests=requests, perfetto=perfetto)
    run(
        file,
        overrides=set_ or (),
        outputs=outputs,
        json=format_ is Format.JSON,
        fast_forward=fast_forward,
        check=check,
    )


@app.command("validate")
def validate_command(file: Scenario, set_: Set = None) -> None:
    """Check a scenario and the files it names, without running it."""
    from sim.commands.validate import validate

    validate(file, set_ or ())


@app.command("workload")
def workload_command(
    file: Scenario,
    set_: Set = None,
    format_: Annotated[Format, typer.Option("--format", help="of the table")] = Format.TABLE,
) -> None:
    """Describe a scenario's traffic: rates, lengths, what an endless cache would hit."""
    from sim.commands.workload import describe_workload

    describe_workload(file, set_ or (), json=format_ is Format.JSON)


@app.command("compare")
def compare_command(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="decision log")],
    other: Annotated[
        Path, typer.Argument(metavar="OTHER", help="decision log, or scenario (YAML) to replay on")
    ],
    set_: Set = None,
) -> None:
    """Find the first step at which two logs, or a log and a scenario, decide otherwise."""
    from sim.commands.compare import compare

    compare(log, other, set_ or ())


@app.command("demo")
def demo_command(
    out: Annotated[Path, typer.Option(help="folder for the picture")] = Path("demo-out"),
) -> None:
    """First come first served against longest prefix match, on a built-in workload."""
    from sim.commands.demo import demo

    demo(out)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if not (sys.argv[1:] if argv is None else argv):
        argv = ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without the characters of a table or a name is no failure.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(args=argv, prog_name="simulate", standalone_mode=False)
        # Here, not at the interpreter's exit, where a closed pipe would be reported.
        sys.stdout.flush()
        if code == _INTERRUPTED:
            # Typer makes an exit code of Ctrl-C, and says nothing.
            _complain("interrupted", _INTERRUPTED)
    except InputError as error:
        code = _complain(str(error), 2)
    except TyperException as error:
        code = _complain(f"{_usage_fault(error)} (see simulate --help)", 2)
    except KeyboardInterrupt:
        code = _complain("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout has gone; nobody is left to tell, now or at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        traceback.print_exc()
        code = _complain(f"internal error, not your input: {type(error).__name__}: {error}", 1)
    return code if isinstance(code, int) else 0


def _usage_fault(error: TyperException) -> str:
    """Which option or argument is wrong, without the full stop and the library's own words."""
    return error.format_message().replace("Value error, ", "").strip().removesuffix(".")


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    sys.stderr.write(f"simulate: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
