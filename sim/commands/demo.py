"""`simulate demo`: the effect of FAIRNESS_T on built-in traffic, as a table and a picture."""

from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sim.command_line.command import command, out_option
from sim.core.errors import InvariantError

if TYPE_CHECKING:
    from sim.sweep.plan import Plan
    from sim.sweep.store import PointOutcome

_T_MS = "scheduler.fairness.t_ms"
_PICTURE = "fairness-t.png"


@command()
def demo(
    out: Annotated[Path, out_option("folder for the picture")] = Path("demo-out"),
) -> None:
    """Compare first come, first served with longest prefix match on built-in traffic."""
    from sim.commands.output import print_line, print_table
    from sim.core.files import make_directory
    from sim.report.figures.render import save_picture
    from sim.report.plots import draw_plot
    from sim.report.sweep_tables import fairness_table
    from sim.scenario.load import load_scenario_text
    from sim.sweep.plan import plan_sweep
    from sim.sweep.results import SweepResults

    make_directory(out)
    text = files("sim.commands").joinpath("demo.yaml").read_text(encoding="utf-8")
    plan = plan_sweep(load_scenario_text(text, name="demo.yaml"))
    outcomes = _outcomes(plan)
    results = SweepResults.of_plan(plan, (outcomes[str(point.number)] for point in plan.points))
    print_table(fairness_table(results, _T_MS))
    section = plan.base.scenario.report
    [plot] = (section.plots if section else None) or ()
    drawn = draw_plot(results, plot)
    save_picture(drawn.picture, out / _PICTURE)
    print_line("")
    print_line(drawn.caption)
    print_line(f"picture: {out / _PICTURE}")


def _outcomes(plan: "Plan") -> "dict[str, PointOutcome]":
    """Run all points on all cores, and store nothing; returns the outcomes by point number."""
    from sim.commands.searching.sweep_points import run_point
    from sim.report.progress import Progress
    from sim.workers.choose import num_cores
    from sim.workers.executor import Task, TaskStatus
    from sim.workers.process_pool import ProcessPool

    tasks = [Task(str(point.number), plan.vary(point.settings)) for point in plan.points]
    pool = ProcessPool(min(len(tasks), num_cores()))
    outcomes = {}
    with (
        Progress(len(tasks), text=lambda _: "values of T") as progress,
        closing(pool.run(tasks, run_point)) as arriving,
    ):
        for outcome in arriving:
            if outcome.status is not TaskStatus.DONE:
                raise InvariantError(f"demo.yaml: {outcome.message}")
            outcomes[outcome.key] = outcome
            progress.update(len(outcomes), 0)
    return outcomes
