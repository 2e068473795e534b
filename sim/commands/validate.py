"""`simulate validate`: a scenario, without a run."""

from typing import TYPE_CHECKING

from sim.command_line import Scenario, Set, command
from sim.tables.table import counted

if TYPE_CHECKING:
    from sim.scenario.build import BuiltScenario


@command(user_code=True)
def validate(file: Scenario, set_: Set = None) -> None:
    """Check a scenario and the files it names, without running it."""
    from sim.commands.output import print_line
    from sim.commands.running.simulate import handover_of
    from sim.contest.plan import plan_contest
    from sim.des.routers.table import make_router
    from sim.report.plots import check_report_section
    from sim.scenario.build import build, located_errors
    from sim.scenario.load import load_scenario
    from sim.sweep.plan import plan_sweep
    from sim.sweep.tune.plan import plan_tune

    loaded = load_scenario(file, set_ or ())
    built = build(loaded)
    for each in loaded.pools.values() or (loaded,):
        with located_errors(each):
            make_router(each.scenario.router, each.base_dir)
    with located_errors(loaded):
        handover_of(built)
    requests = counted(built.workload.num_requests, "request")
    text = f"{file}: valid; {requests}, {_servers(built)}"
    plan = None if loaded.scenario.sweep is None else plan_sweep(loaded)
    check_report_section(loaded, plan)
    if plan is not None:
        text += f", a sweep of {counted(len(plan.points), 'point')}"
    if loaded.scenario.tune is not None:
        text += f", a search of {counted(plan_tune(loaded).num_trials, 'trial')}"
    if loaded.scenario.contest is not None:
        text += f", a contest of {counted(plan_contest(loaded).num_runs, 'run')}"
    print_line(text)


def _servers(built: "BuiltScenario") -> str:
    """`3 replicas`, or `2 replicas in pool prefill, 1 replica in pool decode`."""
    if not built.pools:
        return counted(len(built.latencies), "replica")
    return ", ".join(
        f"{counted(len(pool.latencies), 'replica')} in pool {name}"
        for name, pool in built.pools.items()
    )
