"""How many draft tokens the target model accepts: a property of the traffic and the models.

A draw depends on the request and on the place in its output alone. So it is the same whatever else
is in the batch, and a request that is preempted goes on as if it had not been.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Final

from sim.core.splitmix import GOLDEN_RATIO, mixed

_MASK = (1 << 64) - 1
# Makes the draws independent of the token ids, which come from the same seed and place.
_SALT = 0xD1B54A32D192ED03
_ONE = float(1 << 53)


class Acceptance:
    """Draws the number of accepted draft tokens."""

    def num_accepted(self, rid: str, seed: int, place: int, most: int) -> int:
        """Accepted draft tokens of a verify step, at most `most`.

        Args:
            rid: the request.
            seed: seed of its output.
            place: output tokens that it had before the step.
            most: draft tokens that the step verifies.
        """
        raise NotImplementedError


class AcceptanceByPosition(Acceptance):
    """Each draft token is accepted with a probability, if all before it were."""

    def __init__(self, probabilities: Sequence[float]) -> None:
        """`probabilities[i]` is that of the draft token i, given that those before are accepted."""
        # The probability that at least i + 1 tokens are accepted.
        self._at_least: Final = list(accumulate(probabilities, mul))

    def num_accepted(self, rid: str, seed: int, place: int, most: int) -> int:
        drawn = (mixed((((seed << 32 | place) ^ _SALT) + GOLDEN_RATIO) & _MASK) >> 11) / _ONE
        num_accepted = 0
        for at_least in self._at_least[:most]:
            if drawn >= at_least:
                break
            num_accepted += 1
        return num_accepted


class RecordedAcceptance(Acceptance):
    """What each verify step of a recorded request accepted, in order.

    The counts cut a request's output into pieces of one token and its accepted drafts. A step ends
    where the piece ends that it begins in. If a request has more steps than were recorded, the
    list starts anew; one that was not recorded takes the list of another, chosen by its seed.

    Example: 2, 0, 1 were accepted. After its first token, the output has pieces of 3, 1 and 2
    tokens, which end at 4, 5 and 7 tokens, then again of 3, 1 and 2, which end at 10, 11 and 13.
    """

    def __init__(self, counts: Mapping[str, Sequence[int]]) -> None:
        """`counts` has at least one request, and each request at least one count."""
        self._ends: Final = {
            rid: list(accumulate([1 + count for count in each])) for rid, each in counts.items()
        }
        self._lists: Final = list(self._ends.values())

    def num_accepted(self, rid: str, seed: int, place: int, most: int) -> int:
        ends = self._ends.get(rid)
        if ends is None:
            ends = self._lists[mixed(seed & _MASK) % len(self._lists)]
        at = (place - 1) % ends[-1]
        for end in ends:
            if end > at:
                return min(end - at - 1, most)
        return 0


@dataclass(frozen=True, slots=True)
class Speculation:
    """How a server drafts.

    Attributes:
        method: the server's name for the method.
        num_tokens: draft tokens of a row in a step, at most.
        acceptance: how many of them are accepted.
    """

    method: str
    num_tokens: int
    acceptance: Acceptance


def probability_for(mean_length: float, num_drafts: int) -> float:
    """The probability, the same for each draft token, with which steps yield `mean_length` tokens.

    A step that verifies k draft tokens, each accepted with probability a, yields
    1 + a + a**2 + ... + a**k tokens on average.

    Args:
        mean_length: from 1 to 1 + `num_drafts`.
        num_drafts: draft tokens of a step.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum([middle**i for i in range(num_drafts + 1)]) < mean_length:
            low = middle
        else:
            high = middle
    return high
