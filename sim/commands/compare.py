"""`simulate compare`: compares a decision log with another one, or replays it on a scenario."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sim.commands.output import print_line
from sim.core.errors import InputError
from sim.engine.decision import DECIDED_FIELDS, HOST_FIELDS, Divergence
from sim.engine.executor import ScriptedExecutor
from sim.engine.page_pool import PageCounts
from sim.engine.replay import Replay, replay
from sim.families import build_engine
from sim.runlog.decisions import first_difference, read_decisions
from sim.runlog.json_lines import Line
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import load_scenario
from sim.workload.workload import ScriptedRequest

_SCENARIO_SUFFIXES = (".yaml", ".yml")


def compare(log: Path, other: Path, overrides: Sequence[str]) -> None:
    """Compare a decision log with another, or replay it on a scenario; print the first difference.

    Two logs agree if every step has the same decision; their times may differ. A replay feeds the
    log's arrivals and times to a fresh engine.

    Raises:
        InputError: a log or the scenario is bad, or the scenario lacks requests of the log.
    """
    steps, requests = read_decisions(log)
    if other.suffix in _SCENARIO_SUFFIXES:
        built = build(load_scenario(other, overrides))
        divergence = _replay_all(log, steps, requests, built)
        how = "decided again"
    else:
        if overrides:
            raise InputError(f"--set {overrides[0]}: {other} is a log, not a scenario")
        divergence = first_difference(steps, read_decisions(other)[0], _differing_fields)
        how = "the same"
    print_line(str(divergence) if divergence else f"all {len(steps):,} steps are {how}")


def _differing_fields(ours: Line, theirs: Line) -> list[str]:
    names = ("replica", *DECIDED_FIELDS, *HOST_FIELDS)
    return [name for name in names if ours.get(name) != theirs.get(name)]


def _replay_all(
    log: Path, steps: list[Line], requests: list[Line], built: BuiltScenario
) -> Divergence | None:
    """Replay each server of the log on its own; returns the first difference."""
    known = _requests_of(built)
    for number in sorted({step["replica"] for step in steps}):
        executor = ScriptedExecutor()
        config = built.scheduler
        pool = PageCounts(config.pool_tokens // config.page_size, config.page_size)
        arrivals = []
        for line in requests:
            if line["replica"] != number:
                continue
            if line["rid"] not in known:
                raise InputError(f"{log}: request {line['rid']} is not in the scenario")
            request = known[line["rid"]]
            spec = replace(request.spec, arrival_ns=line["arrival_ns"])
            executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
            arrivals.append(spec)
        recorded = Replay(
            arrivals=arrivals,
            steps=[step for step in steps if step["replica"] == number],
            overlaps=config.overlaps,
        )
        engine = build_engine(config, pool=pool, executor=executor)
        if divergence := replay(engine, executor, recorded):
            return replace(divergence, where=f"replica {number}, {divergence.where}")
    return None


def _requests_of(built: BuiltScenario) -> dict[str, ScriptedRequest]:
    """All requests of a scenario by name, those of closed-loop clients included."""
    known = {request.spec.rid: request for request in built.workload.arrivals()}
    for turns in built.workload.clients():
        known |= {turn.request.spec.rid: turn.request for turn in turns}
    return known
