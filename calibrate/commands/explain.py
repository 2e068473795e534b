"""`calibrate explain`: why one run is slower than another."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sim.command_line import OutputFormat, Set, command, format_option, out_option


def _set_option(side: str) -> Any:
    return typer.Option(
        f"--set-{side}", metavar="KEY.PATH=VALUE", help=f"as --set, of {side.upper()} alone"
    )


@command(user_code=True)
def explain(
    *,
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE",
            help="log of a real run, or a folder with the log of each server of a fleet; or a"
            " scenario, whose twin is then the first run (a name that ends in .yaml or .yml)",
        ),
    ],
    after: Annotated[
        Path, typer.Argument(metavar="AFTER", help="the run to be explained; as BEFORE")
    ],
    out: Annotated[Path | None, out_option("folder for explanation.json and a picture")] = None,
    format_: Annotated[OutputFormat, format_option("results")] = OutputFormat.TABLE,
    base_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="folder of relative paths in the logs' scenarios; default: each log's folder",
        ),
    ] = None,
    set_: Set = None,
    set_before: Annotated[list[str] | None, _set_option("before")] = None,
    set_after: Annotated[list[str] | None, _set_option("after")] = None,
    skip: Annotated[
        int | None,
        typer.Option(min=1, help="leave the first N requests of each log out of all means"),
    ] = None,
) -> None:
    """Say why AFTER is slower, or faster, than BEFORE.

    Every difference is put into a simulation, one after another: traffic, settings, step times,
    stalls. What each changes in TTFT, TPOT and latency is what it is worth.
    """
    from calibrate.commands.modes import is_scenario
    from calibrate.explain.causes import explain as find_causes
    from calibrate.explain.logs import logs_in, run_of_logs
    from calibrate.explain.report import document, parts_table, sentences, table
    from calibrate.explain.run import run_of_scenario
    from sim.commands.output import check_folder, print_line, print_table
    from sim.core.errors import InputError
    from sim.core.files import json_text

    if set_ and not any(is_scenario(path.name) for path in (before, after)):
        raise InputError("--set: only with a scenario (.yaml)")
    own = {"--set-before": (before, set_before or []), "--set-after": (after, set_after or [])}
    for option, (path, changes) in own.items():
        if changes and not is_scenario(path.name):
            raise InputError(f"{option}: {path} is a log; only keys of a scenario can be set")
    if out is not None:
        check_folder(out, before)
        check_folder(out, after)
    runs = [
        run_of_scenario(path, [*(set_ or ()), *changes])
        if is_scenario(path.name)
        else run_of_logs(logs_in(path) if path.is_dir() else [path], base_dir, skip or 0)
        for path, changes in own.values()
    ]
    explanation = find_causes(*runs)
    text = json_text(document(explanation))
    if out is not None:
        from calibrate.explain.files import write_explanation

        write_explanation(explanation, out)
    if format_ is OutputFormat.JSON:
        print_line(text.rstrip())
        return
    print_table(table(explanation))
    print_line("")
    print_table(parts_table(explanation))
    print_line("")
    for sentence in sentences(explanation):
        print_line(sentence)
