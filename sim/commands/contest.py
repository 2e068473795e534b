"""`simulate contest`: schedulers that compete under the same traffic."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line import (
    Backend,
    Jobs,
    OutputFormat,
    RayAddress,
    Resume,
    Scenario,
    Set,
    command,
    format_option,
    out_option,
)
from sim.core.errors import InputError

if TYPE_CHECKING:
    from sim.contest.plan import Contest

_TRIALS = 300


@command(user_code=True)
def contest(
    file: Scenario,
    set_: Set = None,
    jobs: Jobs = None,
    executor: Annotated[Backend, typer.Option(help="where runs are made")] = Backend.PROCESS,
    ray_address: RayAddress = None,
    out: Annotated[
        Path | None,
        out_option("folder for runs and results; default: FILE-contest, or FILE-attack"),
    ] = None,
    resume: Resume = True,
    attack: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="search for the traffic under which this contestant is worst beside the"
            " reference; no contest is held",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=3, max=100_000, help="with --attack: how many traces are tried; default 300"
        ),
    ] = None,
    format_: Annotated[OutputFormat, format_option("results")] = OutputFormat.TABLE,
) -> int:
    """Compare the schedulers of a scenario's contest section: who wins, where, how surely."""
    from sim.commands.output import check_folder, print_line, print_table
    from sim.commands.running.contests import contest_in, report_failures
    from sim.contest.files import contest_json, write_contest
    from sim.contest.plan import plan_contest
    from sim.contest.tables import overview_lines, overview_table
    from sim.core.packed import name_of
    from sim.scenario.build import check_packages
    from sim.scenario.load import load_scenario
    from sim.workers.choose import choose_executor, num_cores

    planned = plan_contest(load_scenario(file, set_ or ()), set_ or ())
    for base in planned.plan.bases.values():
        check_packages(base)
    if attack is not None:
        out = out or Path(f"{name_of(file)}-attack")
        check_folder(out, file)
        return _attack(planned, attack, trials or _TRIALS, out, format_)
    if trials is not None:
        raise InputError("--trials: goes with --attack only")
    workers = choose_executor(jobs, ray=executor is Backend.RAY, ray_address=ray_address)
    out = out or Path(f"{name_of(file)}-contest")
    check_folder(out, file)
    results = contest_in(out, planned, workers, jobs=jobs or num_cores(), fresh=not resume)
    written = write_contest(results, out)
    if format_ is OutputFormat.JSON:
        print_line(contest_json(results).rstrip())
    else:
        for line in overview_lines(results):
            print_line(line)
        table = overview_table(results, results.usual_load)
        print_line(f"\n{table.title}:")
        print_table(table)
        print_line(f"\nwritten: {', '.join(map(str, written))}")
    return report_failures(results, out)


def _attack(
    planned: "Contest", name: str, num_trials: int, out: Path, format_: OutputFormat
) -> int:
    """Search for the worst traffic of a contestant, and write what was found."""
    from sim.commands.output import print_line
    from sim.commands.running.attacks import attack_in
    from sim.contest.attack.files import attack_json, attack_lines, commands, write_attack

    duel, found = attack_in(out, planned, name, num_trials)
    written = write_attack(duel, found, out)
    if format_ is OutputFormat.JSON:
        print_line(attack_json(duel, found).rstrip())
        return 0
    for line in attack_lines(duel, found):
        print_line(line)
    for contestant, command_line in commands(duel).items():
        print_line(f"\n{contestant}: {command_line}")
    print_line(f"\nwritten: {', '.join(map(str, written))}")
    return 0
