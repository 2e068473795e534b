"""Runs an attack on a contestant into a folder."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from sim.commands.running.simulate import simulate_built
from sim.contest.attack.duel import Duel
from sim.contest.attack.files import TRACE
from sim.contest.attack.search import Found, attack
from sim.contest.attack.streams import TraceLimits
from sim.contest.plan import Contest
from sim.core.errors import unknown_name
from sim.core.files import make_folder
from sim.des.run import RunOptions
from sim.report.progress import Progress
from sim.runlog import RunLog
from sim.scenario.build import build
from sim.scenario.load import LoadedScenario
from sim.workload.traces.read import TraceReader

# A prompt has at most a third of the pool's tokens, and an answer at most an eighth.
_PROMPTS_IN_POOL, _ANSWERS_IN_POOL = 3, 8
# Nor do they have more tokens than these. A stream has at most 150 requests.
_MOST_PROMPT, _MOST_OUTPUT, _MOST_REQUESTS = 8_000, 200, 150


def attack_in(out: Path, contest: Contest, name: str, num_trials: int) -> tuple[Duel, Found]:
    """Search for the traffic under which a contestant is worst beside the reference.

    Raises InputError: there is no such contestant, or it is the reference.
    """
    section = contest.section
    others = [each for each in section.contestants if each != section.reference]
    if name not in others:
        raise contest.base.error(
            ("contest", "contestants"), f"--attack: {unknown_name('contestant', name, others)}"
        )
    make_folder(out)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        duel = Duel(contest, _serve, name, out / TRACE, scratch)
        pool = duel.pool_tokens
        limits = TraceLimits(
            duel.unit_s,
            most_prompt=min(_MOST_PROMPT, pool // _PROMPTS_IN_POOL),
            most_output=min(_MOST_OUTPUT, pool // _ANSWERS_IN_POOL),
            most_requests=_MOST_REQUESTS,
            has_priorities=duel.has_priorities,
        )
        progress = stack.enter_context(Progress(num_trials, text=lambda _: "traces"))
        found = attack(
            duel,
            limits,
            num_trials=num_trials,
            seed=contest.base.scenario.seed,
            watcher=lambda number: progress.update(number, 0),
        )
    return duel, found


def _serve(loaded: LoadedScenario, read_trace: TraceReader) -> RunLog:
    return simulate_built(build(loaded, read_trace=read_trace), RunOptions())
