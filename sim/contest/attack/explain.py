"""Says why a request suffers most: who was served before it, and what they have that it lacks."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sim.contest.attack.duel import Outcome
from sim.core.arrays import Bools, Int64
from sim.core.units import NS_PER_S
from sim.runlog import RequestColumns
from sim.tables.table import counted


class Likeness(NamedTuple):
    """How many of those that were served first have something that the victim has not."""

    what: str
    num: int


class Explanation(NamedTuple):
    """Why a request suffers.

    Attributes:
        rid: the request.
        here_s, there_s: from its arrival to its last token with the contestant, and with the
            reference.
        num_first: requests that came later and were done before it here, but not there.
        likenesses: what these have that it has not, most frequent first.
        stops: how often it was put back into the queue after it had begun, here.
    """

    rid: str
    here_s: float
    there_s: float
    num_first: int
    likenesses: tuple[Likeness, ...]
    stops: int


def explain(outcome: Outcome) -> Explanation:
    """Compare the victim with the requests that got past it.

    Example: of lpm beside fcfs, 30 requests that came later were done first, and all 30 found more
    of their prompts in the cache: the order by cached tokens let them past.
    """
    here, there, victim, _ = outcome
    # The rows of both are in order of submission, which is the trace's.
    came_later = here.arrival_ns > here.arrival_ns[victim]
    past = came_later & (here.finish_ns < here.finish_ns[victim])
    past &= there.finish_ns > there.finish_ns[victim]
    found = [
        Likeness(what, int((past & mask).sum())) for what, mask in _compared(here, victim).items()
    ]
    return Explanation(
        here.rid[victim],
        _latency_s(here, victim),
        _latency_s(there, victim),
        int(past.sum()),
        tuple(sorted((each for each in found if each.num), key=lambda each: -each.num)),
        int(here.retractions[victim] + here.preemptions[victim]),
    )


def _compared(requests: RequestColumns, victim: int) -> Mapping[str, Bools]:
    """In which ways each request comes before the victim under one policy or another."""
    cached, prompts = requests.cached_tokens, requests.prompt_tokens
    return {
        "a higher priority": _above(requests.priority, victim),
        "more cached tokens": _above(cached, victim),
        "fewer tokens to compute": _below(prompts - cached, victim),
        "a shorter prompt": _below(prompts, victim),
        "a shorter answer": _below(requests.output_tokens, victim),
    }


def _above(values: Int64, victim: int) -> Bools:
    above: Bools = values > values[victim]
    return above


def _below(values: Int64, victim: int) -> Bools:
    below: Bools = values < values[victim]
    return below


def _latency_s(requests: RequestColumns, row: int) -> float:
    return float(requests.finish_ns[row] - requests.arrival_ns[row]) / NS_PER_S


def sentences(found: Explanation, name: str, reference: str) -> Iterator[str]:
    """The explanation in words."""
    yield (
        f"Request {found.rid} takes {found.here_s:.3g} s with {name} and {found.there_s:.3g} s"
        f" with {reference}."
    )
    if found.num_first:
        likeness = ", ".join(
            f"{'all' if each.num == found.num_first else each.num} have {each.what}"
            for each in found.likenesses
        )
        likeness = likeness or "none differs in what is compared"
        yield (
            f"{counted(found.num_first, 'request')} that came later were done before it, but not"
            f" with {reference}: of these, {likeness}."
        )
    if found.stops:
        yield f"It was put back into the queue {counted(found.stops, 'time')} after it had begun."
