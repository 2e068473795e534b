"""`calibrate fit`: from results of a benchmark, run logs or a measured run to step times."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrate.commands.options import First, MeasuredArrivals
from sim.command_line import Set, command, out_option, renamed
from sim.families import RESULT_FORMATS

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = StrEnum("FormatName", {name: name for name in RESULT_FORMATS})

Scenario = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="estimate host times; LOG is then a measured run of this scenario (YAML)",
    ),
]


@command(user_code=True)
def fit(
    *,
    logs: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="results of a benchmark; run logs; or a server's logs"
        ),
    ],
    out: Annotated[
        Path,
        out_option(
            "folder to write; of run logs or host times: a file that ends in .json", "DIR|FILE"
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="name of the profile; default: that of the file, without .json"),
    ] = None,
    label: Annotated[str | None, typer.Option(help="what a reader should know about it")] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="parts of the samples that are held out in turn to measure errors; default: 5",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="seed of the random division into these parts; default: 0"),
    ] = None,
    power: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="CSV",
            help="of logs: what nvidia-smi or DCGM read of the GPUs' power meanwhile; repeatable",
        ),
    ] = None,
    power_offset: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="with --power: added to its times to get the log's; default: 0, of run logs found",
        ),
    ] = None,
    scenario: Scenario = None,
    set_: Set = None,
    first: First = None,
    per_request: Annotated[
        bool,
        typer.Option("--per-request", help="with a scenario: also a time per request in a step"),
    ] = False,
    measured_arrivals: MeasuredArrivals = False,
    kind: Annotated[
        str | None,
        typer.Option(help="of results: linear, roofline or aiconfigurator; default: linear"),
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(metavar="SCENARIO", help="of results: a scenario of the server"),
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="LINE", help="of results: the command of the server")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="GPU", help="of results: its GPUs, such as h100_sxm")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="of a server's logs: the model, if its name is not known"
        ),
    ] = None,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try", metavar="KEY=V,V...", help="of results: take the best of these settings"
        ),
    ] = None,
    from_: Annotated[
        FormatName | None,
        typer.Option("--from", help="format of results; default: detected from their content"),
    ] = None,
    _format: Annotated[str | None, renamed("--format", "--from")] = None,
    line: Annotated[
        int | None, typer.Option(min=1, help="of results with one run on each line: this line")
    ] = None,
) -> None:
    """Fit a scenario's step times to a benchmark's results, or a latency profile to run logs.

    Also a latency profile to the text logs of an SGLang or vLLM server. With --scenario: fit host
    times to a measured run.
    """
    from calibrate.commands.modes import are_results, are_server_logs, only_with, the_one_run

    of_power = {"--power": power or None, "--power-offset": power_offset}
    of_results = {
        "--kind": kind, "--template": template, "--server": server, "--hardware": hardware,
        "--try": try_, "--from": from_, "--line": line,
    }  # fmt: skip
    if scenario is None and (from_ is not None or are_results(logs)):
        from calibrate.coefficients.prepare import PrepareOptions
        from calibrate.coefficients.scenario import FitServerOptions
        from calibrate.commands.fit_results import FitOptions, fit_results
        from sim.workload.results.model import ReadOptions

        of_logs = {"--name": name, "--label": label, "--folds": folds, "--seed": seed, **of_power}
        only_with("run logs", of_logs)
        only_with("a server's logs", {"--model": model})
        with_scenario = {"--per-request": per_request, "--measured-arrivals": measured_arrivals}
        only_with("--scenario", with_scenario)
        about = FitServerOptions(kind=kind, template=template, server=server, hardware=hardware)
        options = FitOptions(
            prepare=PrepareOptions(server=about, overrides=set_ or (), tries=try_ or ()),
            first=first,
            format=from_,
            read=ReadOptions(line=line),
        )
        fit_results(logs, out, options)
        return
    only_with("results of a benchmark", of_results)
    readings = None
    if power:
        from calibrate.power.add import PowerReadings

        readings = PowerReadings.of(power, power_offset)
    else:
        only_with("--power", {"--power-offset": power_offset})
    if scenario is None:
        beside = {"--set": set_, "--first": first, "--per-request": per_request}
        only_with("--scenario", {**beside, "--measured-arrivals": measured_arrivals})
    if scenario is None and are_server_logs(logs):
        only_with("run logs", {"--folds": folds})
        from calibrate.commands.fit_server_logs import fit_server_logs

        fit_server_logs(
            logs,
            out,
            name=name,
            label=label or "",
            seed=seed or 0,
            model=model,
            power=readings,
        )
        return
    only_with("a server's logs", {"--model": model})
    if scenario is None:
        from calibrate.commands.fit_run_logs import fit_run_logs

        fit_run_logs(
            logs,
            out,
            name=name,
            label=label or "",
            num_folds=folds or 5,
            seed=seed or 0,
            power=readings,
        )
        return
    only_with(
        "run logs, not with --scenario",
        {"--name": name, "--label": label, "--folds": folds, "--seed": seed, **of_power},
    )
    from calibrate.commands.fit_host import fit_host
    from calibrate.commands.measured_input import MeasuredInput
    from calibrate.measured.pairs import Selection

    given = MeasuredInput(
        scenario=scenario,
        run=the_one_run(logs),
        overrides=set_ or (),
        selection=Selection(first=first),
        measured_arrivals=measured_arrivals,
    )
    fit_host(given, out, per_request=per_request)
