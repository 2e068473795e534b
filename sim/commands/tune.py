"""`simulate tune`: the best settings of a scenario under its SLO, and how to launch them."""

from pathlib import Path
from typing import Annotated

from sim.command_line.command import (
    Jobs,
    OutputFormat,
    Resume,
    Scenario,
    Set,
    command,
    format_option,
    out_option,
)


@command(user_code=True)
def tune(
    file: Scenario,
    set_: Set = None,
    jobs: Jobs = None,
    out: Annotated[
        Path | None, out_option("folder for points and results; default: FILE-tune")
    ] = None,
    resume: Resume = True,
    format_: Annotated[OutputFormat, format_option("results")] = OutputFormat.TABLE,
) -> int:
    """Search the ranges in a scenario's tune section for the best settings under its SLO."""
    from sim.commands.output import check_folder, print_line
    from sim.commands.searching import tune_search
    from sim.core.packed import name_of
    from sim.scenario.build import check_packages
    from sim.scenario.load import load_scenario
    from sim.sweep.result_files import write_search_results
    from sim.sweep.tune.files import tune_json, tune_rows
    from sim.sweep.tune.plan import plan_tune
    from sim.sweep.tune.search import search_of

    plan = plan_tune(load_scenario(file, set_ or ()))
    check_packages(plan.plan.base)
    search = search_of(plan)
    out = out or Path(f"{name_of(file)}-tune")
    check_folder(out, file)
    results = tune_search.run_in(out, plan, search, jobs=jobs, fresh=not resume)
    launches = tune_search.launches(plan, results)
    text = tune_json(results, launches, plan.plan.base.raw)
    write_search_results(tune_rows(results), text, out)
    if format_ is OutputFormat.JSON:
        print_line(text.rstrip())
    else:
        tune_search.print_results(results, launches)
    tune_search.warn_of_ranges(results)
    failed = tune_search.report_failures(results, out)
    return 1 if failed or results.winner is None else 0
