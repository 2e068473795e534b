"""The races: the work, our command for it, and a peer's command."""

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
class Bar:
    """One row of the table.

    Attributes:
        work: description of the work.
        num_requests: requests that both serve; 0 if requests per second make no sense.
        ours: our command.
        peer: name of the other simulator; "" if there is none.
        theirs: the peer's command.
    """

    work: str
    num_requests: int
    ours: list[str]
    peer: str = ""
    theirs: tuple[str, ...] = ()


def conversation_bars(trace: Path, step_times: Path) -> list[Bar]:
    """Mooncake's conversation trace, against Dynamo."""
    return [
        _conversation_bar("1 replica", trace, step_times),
        _conversation_bar("4 replicas", trace, step_times, replicas=4),
        _conversation_bar("4 replicas, page size 1", trace, step_times, replicas=4, page_size=1),
        _conversation_bar("arrivals x 4, 1 replica, fcfs", trace, step_times, pace=4),
        _conversation_bar("arrivals x 4, 1 replica, lpm", trace, step_times, pace=4, policy="lpm"),
    ]


def _conversation_bar(
    work: str,
    trace: Path,
    step_times: Path,
    *,
    replicas: int = 1,
    page_size: int = 64,
    pace: int = 1,
    policy: str = "fcfs",
) -> Bar:
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
    return Bar(f"Mooncake, {work}", NUM_CONVERSATION, ours, DYNAMO, tuple(theirs))


def chats_bar(trace: Path) -> Bar:
    """Chunked prefill without a prefix cache, against sched-sim."""
    theirs = commands.sched_sim(trace)
    work = "10,000 chats, chunked prefill, no prefix cache"
    return Bar(work, NUM_CHATS, commands.ours("chunked.yaml"), SCHED_SIM, tuple(theirs))


def start_up_bar() -> Bar:
    """How long the smallest scenario takes, nearly all of it start-up."""
    return Bar("scenarios/smoke.yaml", 0, commands.ours(REPOSITORY / "scenarios" / "smoke.yaml"))


def million_bar() -> Bar:
    """A million requests, which takes minutes."""
    return Bar("1,000,000 requests, 8 replicas", NUM_MILLION, commands.ours("million.yaml"))
