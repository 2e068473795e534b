"""A real run simulated in three stages, to tell the sources of errors apart.

1. Replay: a new engine decides from what the real one knew at each decision.
2. Recorded: the simulator serves the same arrivals, and steps take as long as the real ones. The
   errors of this stage are the driver's, because a simulated server decides in no time. So if a
   request arrives while the real server decides, the simulated one sees it one step later.
3. Profile: the same with predicted step times, which adds the latency model's error.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from calibrate.nearest_step import NearestStepLatency
from calibrate.rebuild import RebuiltRun
from sim.core.packed import Line
from sim.des.deployment import Deployment
from sim.des.run import RunOptions, simulate
from sim.engine.logged_decision import Divergence
from sim.engine.page_pool import PageCounts
from sim.engine.replay import RankReplay, of_one_server, replay
from sim.families import build_engine, build_executor
from sim.latency.model import LatencyModel
from sim.latency.profile.format import LatencyProfile
from sim.latency.profile.model import ProfileLatency
from sim.runlog import RunLog
from sim.runlog.run_log_file import read_decisions


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A real run's arrivals, served by the simulator.

    Attributes:
        log: of the simulation.
        parted_at: number of the first step that differs; None: all steps are the same.
        same_steps_pct: share of the real steps that the simulation has too, in any order, in
            percent.
    """

    log: RunLog
    parted_at: int | None
    same_steps_pct: float


def replay_decisions(run: RebuiltRun) -> Divergence | None:
    """Stage 1; returns the first decision that is different."""
    executor = build_executor(run.config)
    for request in run.workload.arrivals():
        spec = request.spec
        executor.add(spec.rid, request.script, ignore_eos=spec.ignore_eos)
    pool = PageCounts(run.config.pool_tokens // run.config.page_size, run.config.page_size)
    engine = build_engine(run.config, pool=pool, executor=executor)
    arrivals = [request.spec for request in run.workload.arrivals()]
    server = RankReplay(engine, executor, arrivals)
    return replay([server], of_one_server(run.recorded.steps), overlaps=run.overlaps)


def simulate_recorded(run: RebuiltRun) -> SimulatedRun:
    """Stage 2: with the real run's own step times."""
    # No fast-forward: most steps have to be looked up one by one anyway.
    return _simulate(
        run, NearestStepLatency(run.recorded.steps, overlaps=run.overlaps), fast_forward=False
    )


def simulate_profile(run: RebuiltRun, profile: LatencyProfile) -> SimulatedRun:
    """Stage 3: with a profile's step times.

    Raises:
        InputError: the profile has no times for a step the run needs.
    """
    return _simulate(run, ProfileLatency(profile, overlaps=run.overlaps), fast_forward=True)


def _simulate(run: RebuiltRun, latency: LatencyModel, *, fast_forward: bool) -> SimulatedRun:
    with TemporaryDirectory() as folder:
        decisions = Path(folder) / "decisions.jsonl"
        options = RunOptions(fast_forward=fast_forward, decisions=decisions)
        log = simulate(run.workload, Deployment.of_one_kind(run.config, [latency]), options)
        steps, _ = read_decisions(decisions)
    ours, theirs = [_composition(s) for s in steps], [_composition(s) for s in run.recorded.steps]
    shared = (Counter(ours) & Counter(theirs)).total()
    return SimulatedRun(
        run.without_skipped(log), _parted_at(ours, theirs), round(100 * shared / len(theirs), 4)
    )


def _composition(step: Line) -> tuple[object, ...]:
    """What a step computes, and for whom."""
    prefill = tuple(tuple(row) for row in step["prefill"])
    return step["mode"], prefill, step["n_decode"], step["decode_crc"], step["ctx"]


def _parted_at(ours: list[tuple[object, ...]], theirs: list[tuple[object, ...]]) -> int | None:
    both = min(len(ours), len(theirs))
    first = next((i for i in range(both) if ours[i] != theirs[i]), both)
    return None if first == len(ours) == len(theirs) else first
