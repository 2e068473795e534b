"""`simulate sweep`: runs every point of a scenario's sweep, stores it, and prints a table."""

from pathlib import Path
from typing import Annotated

import typer

from sim.command_line.command import (
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


@command(user_code=True)
def sweep(
    file: Scenario,
    set_: Set = None,
    jobs: Jobs = None,
    executor: Annotated[Backend, typer.Option(help="where points run")] = Backend.PROCESS,
    ray_address: RayAddress = None,
    out: Annotated[
        Path | None, out_option("folder for points and results; default: FILE-sweep")
    ] = None,
    resume: Resume = True,
    format_: Annotated[OutputFormat, format_option("results")] = OutputFormat.TABLE,
) -> int:
    """Run a scenario with every combination of values that its sweep section lists."""
    from sim.commands.output import check_folder, print_line, print_table
    from sim.commands.searching.sweep_points import report_failures, sweep_into, warn_of_ranges
    from sim.core.packed import name_of
    from sim.report.plots import check_report_section
    from sim.report.sweep_tables import same_rows, sweep_table
    from sim.scenario.build import check_packages
    from sim.scenario.load import load_scenario
    from sim.sweep.plan import plan_sweep
    from sim.sweep.result_files import sweep_json
    from sim.workers.choose import choose_executor, num_cores

    plan = plan_sweep(load_scenario(file, set_ or ()))
    check_packages(plan.base)
    check_report_section(plan.base, plan)
    workers = choose_executor(jobs, ray=executor is Backend.RAY, ray_address=ray_address)
    out = out or Path(f"{name_of(file)}-sweep")
    check_folder(out, file)
    results = sweep_into(out, plan, workers, fresh=not resume, jobs=jobs or num_cores())
    if format_ is OutputFormat.JSON:
        print_line(sweep_json(results).rstrip())
    else:
        print_table(sweep_table(results))
        for sentence in same_rows(results):
            print_line(sentence)
    warn_of_ranges(results)
    return report_failures(results, out)
