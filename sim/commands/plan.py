"""`simulate plan`: the cheapest deployments that meet a scenario's SLO, and how to launch them."""

from pathlib import Path
from typing import Annotated

import typer

from sim.command_line.command import command
from sim.command_line.options import Jobs, OutputFormat, Resume, Set, out_option
from sim.commands.plan_question import Question, assumed, question_text

# Without a scenario that it could be named after.
_OUT = "plan-out"


@command(user_code=True)
def plan(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="scenario file (YAML); without it, options say what is wanted"
        ),
    ] = None,
    question: Question,
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
) -> int:
    """Find the cheapest GPUs, parallelism and replicas that meet an SLO.

    With FILE: the SLO of a scenario with a plan section. Without it: of the traffic that options
    describe.
    """
    from sim.commands import plan_search
    from sim.commands.output import ResultFiles, print_line
    from sim.commands.sweep_point import prepare_folder
    from sim.core.files import write_text
    from sim.core.packed import name_of
    from sim.scenario.build import check_packages
    from sim.scenario.load import load_scenario
    from sim.sweep.capacity_files import plan_json, write_plan_results
    from sim.sweep.capacity_plan import plan_capacity
    from sim.sweep.deployments import DeploymentVerdict

    out = out or Path(_OUT if file is None else f"{name_of(file)}-plan")
    if file is not None:
        question.check_unused()
    loaded = question.load(out, set_ or ()) if file is None else load_scenario(file, set_ or ())
    capacity = plan_capacity(loaded)
    check_packages(capacity.plan.base)
    ResultFiles(directory=out).check(file or Path())
    prepare_folder(out)
    if file is None:
        write_text(loaded.path, question_text(loaded))
        # What --set says is in the file, too.
        set_ = None
    deployments = plan_search.run_in(out, capacity, jobs=jobs, fresh=not resume)
    meeting = [one for one in deployments if one.verdict is DeploymentVerdict.MEETS]
    launches = plan_search.launches(capacity, meeting[0]) if meeting else []
    write_plan_results(capacity, deployments, launches, out)
    if format_ is OutputFormat.JSON:
        print_line(plan_json(capacity, deployments, launches).rstrip())
    else:
        if file is None:
            print_line(assumed(loaded))
        plan_search.print_results(loaded.path, set_ or (), capacity, deployments, launches)
    failed = any(one.verdict is DeploymentVerdict.FAILED for one in deployments)
    return 1 if failed or not meeting else 0
