"""The races against other simulators: the work, our command for it, and the peer's."""

from dataclasses import dataclass
from pathlib import Path

from bench import commands
from bench.inputs import NUM_CHATS
from bench.places import OUT, REPOSITORY

DYNAMO = "Dynamo 1.4.2 (Rust)"
SCHED_SIM = "sched-sim 0.2.1 (Python)"
NUM_CONVERSATION = 7_851
NUM_MILLION = 1_000_000
# The linear step times of bench/scenarios/mooncake.yaml.
STEP_TIMES = (
    *("--step-s", "0.0057", "--prefill-token-s", "2.5e-5"),
    *("--decode-row-s", "1e-4", "--context-token-s", "1e-8"),
)


@dataclass(frozen=True, slots=True)
class Race:
    """One race, a row of the table.

    Attributes:
        work: description of the work.
        num_requests: requests that both serve; 0 if the table has no requests per second for it.
        ours: our command.
        peer: name of the other simulator; "" if there is none.
        theirs: the peer's command.
    """

    work: str
    num_requests: int
    ours: list[str]
    peer: str = ""
    theirs: tuple[str, ...] = ()


def conversation_races(trace: Path, step_times: Path) -> list[Race]:
    """Mooncake's conversation trace, against Dynamo."""
    return [
        _conversation_race("1 replica", trace, step_times),
        _conversation_race("4 replicas", trace, step_times, replicas=4),
        _conversation_race("4 replicas, page size 1", trace, step_times, replicas=4, page_size=1),
        _conversation_race("arrivals x 4, 1 replica, fcfs", trace, step_times, pace=4),
        _conversation_race("arrivals x 4, 1 replica, lpm", trace, step_times, pace=4, policy="lpm"),
    ]


def _conversation_race(
    work: str,
    trace: Path,
    step_times: Path,
    *,
    replicas: int = 1,
    page_size: int = 64,
    pace: int = 1,
    policy: str = "fcfs",
) -> Race:
    ours = commands.ours(
        "mooncake.yaml",
        f"replicas={replicas}",
        f"workload.time_scale={1 / pace}",
        f"scheduler.page_size={page_size}",
        f"scheduler.schedule_policy={policy}",
    )
    theirs = commands.dynamo(
        trace,
        OUT / "dynamo.json",
        step_times,
        workers=replicas,
        page_size=page_size,
        sglang={"schedule_policy": policy},
        options=("--arrival-speedup-ratio", str(pace)),
    )
    return Race(f"Mooncake, {work}", NUM_CONVERSATION, ours, DYNAMO, tuple(theirs))


def chats_race(trace: Path) -> Race:
    """Chunked prefill without a prefix cache, against sched-sim."""
    theirs = commands.sched_sim(trace)
    work = "10,000 chats, chunked prefill, no prefix cache"
    return Race(work, NUM_CHATS, commands.ours("chunked.yaml"), SCHED_SIM, tuple(theirs))


def start_up_race() -> Race:
    """The smallest scenario, whose time is nearly all start-up."""
    return Race("scenarios/smoke.yaml", 0, commands.ours(REPOSITORY / "scenarios" / "smoke.yaml"))


def million_race() -> Race:
    """A million requests, which takes minutes."""
    return Race("1,000,000 requests, 8 replicas", NUM_MILLION, commands.ours("million.yaml"))
