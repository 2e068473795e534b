"""Checks a scenario's `report` section against its sweep before anything runs."""

from sim.report.plot_check import check_report, pools_of, tenants_of
from sim.scenario.load import LoadedScenario
from sim.sweep.design import Design
from sim.sweep.plan import SEED, Plan, value_at


def check_report_section(loaded: LoadedScenario, plan: Plan | None) -> None:
    """Check that everything that the plots name exists.

    Args:
        loaded: the scenario.
        plan: its sweep; None: it has no sweep.

    Raises:
        InputError: a plot names a key that is not swept, names an unknown metric, or has too many
            panels.
    """
    section = loaded.scenario.report
    if section is None:
        return
    design = None if plan is None else _design(plan)
    raw = loaded.raw
    if problem := check_report(section, design, tenants_of(raw), pools_of(raw)):
        raise loaded.error(problem.path, problem.reason)


def _design(plan: Plan) -> Design:
    keys = [key for key in plan.keys if key != SEED]
    base = plan.base.scenario.model_dump(mode="json")
    defaults = {key: value_at(base, key) for key in keys}
    return Design.of(keys, [{**defaults, **point.settings} for point in plan.points])
