"""How many tokens are drafted and accepted: a property of the traffic and the models.

A draw depends on the request and on the place in its output alone. So it is the same whatever else
is in the batch, and a request that is preempted goes on as if it had not been.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from operator import mul
from typing import Final

import numpy as np

from sim.core.tokens import GOLDEN_RATIO, finalise, mixed

_MASK = (1 << 64) - 1
# The salts make the draws independent of each other, and of the token ids, which come from the same
# seed and place.
_ACCEPTED_SALT = 0xD1B54A32D192ED03
_PROPOSED_SALT = 0x8CB92BA72F3D8DD7
# A number has this many bits. The draws have 64, of which the others are left out.
_BITS = 53
# Places of an output that are drawn together, a power of two, and how many such pieces are kept.
_PIECE = 256
_KEPT_PIECES = 1 << 13


class Acceptance:
    """Draws the number of draft tokens, and how many of them are accepted."""

    def num_proposed(self, rid: str, seed: int, place: int, most: int) -> int:
        """Draft tokens that follow the output tokens known so far; a drafter may find fewer.

        `seed` is that of its output, `place` its output tokens so far, `most` the server's number
        of draft tokens.
        """
        return most

    def num_accepted(self, rid: str, seed: int, place: int, most: int) -> int:
        """Accepted draft tokens of a verify step, at most `most`.

        `seed` is that of its output, `place` the output tokens before the step; `most` draft tokens
        are verified.
        """
        raise NotImplementedError

    def num_gained(self, rid: str, seed: int, place: int, most: int, end: int) -> bytes:
        """New tokens of each step from `place` on: one, and the accepted drafts, a byte a step.

        Each step verifies all tokens that are drafted, at most `most`, which is below 255. The last
        step is the one that reaches `end` output tokens.

        Example: with `place` 10 and `end` 15, steps that accept 2, 0 and 3 drafts gain 3, 1 and 4
        tokens, and end at 13, 14 and 18 tokens.
        """
        gained: list[int] = []
        while place < end:
            num_found = self.num_proposed(rid, seed, place, most)
            num_tokens = 1 + self.num_accepted(rid, seed, place, num_found)
            gained.append(num_tokens)
            place += num_tokens
        return bytes(gained)


class AcceptanceByPosition(Acceptance):
    """Each draft token is accepted with a probability, if all before it were."""

    def __init__(
        self, probabilities: Sequence[float], proposed_shares: Sequence[float] = ()
    ) -> None:
        """Make the draws.

        `probabilities` are those of each draft token, given that those before it are accepted.
        `proposed_shares` are the shares of places at which 0, 1, 2, ... tokens are drafted; empty:
        at each place, as many as the server asks for.
        """
        self._num_probabilities: Final = len(probabilities)
        # The probabilities that at least i + 1 tokens are accepted.
        at_least = list(accumulate(probabilities, mul))
        self._rejected: Final = _Draws(_ACCEPTED_SALT, at_least)
        # The probabilities that at most i tokens are drafted.
        at_most = list(accumulate(proposed_shares))
        self._proposed: Final = _Draws(_PROPOSED_SALT, at_most) if at_most else None

    def num_proposed(self, rid: str, seed: int, place: int, most: int) -> int:
        if self._proposed is None:
            return most
        return min(self._proposed.num_reached(seed, place), most)

    def num_accepted(self, rid: str, seed: int, place: int, most: int) -> int:
        return min(self._num_probabilities - self._rejected.num_reached(seed, place), most)

    def num_gained(self, rid: str, seed: int, place: int, most: int, end: int) -> bytes:
        """As the base class has it, for many places that are drawn at once."""
        if self._proposed is not None:
            return super().num_gained(rid, seed, place, most, end)
        num_all = self._num_probabilities
        by_rejected = bytes([1 + min(num_all - rejected, most) for rejected in range(1 + num_all)])
        at_place = self._rejected.reached(seed, place, end).translate(by_rejected.ljust(256))
        gained: list[int] = []
        at, num_places = 0, len(at_place)
        while at < num_places:
            num_tokens = at_place[at]
            gained.append(num_tokens)
            at += num_tokens
        return bytes(gained)


class _Draws:
    """A number from 0 to below 1 for each place in each output.

    The places of an output are drawn 256 at a time, which takes a tenth of the time that one takes
    by itself.
    """

    def __init__(self, salt: int, limits: Sequence[float]) -> None:
        """Draw with one of the salts. `limits` are at most 255."""
        self._salt: Final = np.uint64(salt)
        # What is drawn, as 64 bits, is compared with these. No number reaches 1.
        limits_of_bits = [ceil(limit * (1 << _BITS)) for limit in limits if limit < 1]
        self._limits: Final = [np.uint64(limit << 64 - _BITS) for limit in limits_of_bits]
        # By seed and number of the piece: what `num_reached` returns for each of its places.
        self._pieces: Final = dict[int, bytes]()

    def num_reached(self, seed: int, place: int) -> int:
        """How many of the limits the number of this place is equal to or above."""
        first = seed << 32 | place & -_PIECE
        piece = self._pieces.get(first)
        if piece is None:
            if len(self._pieces) == _KEPT_PIECES:
                self._pieces.clear()
            piece = self._pieces[first] = self._drawn(first & _MASK, _PIECE)
        return piece[place % _PIECE]

    def reached(self, seed: int, place: int, end: int) -> bytes:
        """`num_reached` of each place from `place` to below `end`."""
        return self._drawn((seed << 32 | place) & _MASK, max(end - place, 0))

    def _drawn(self, first: int, num_places: int) -> bytes:
        mixed_places = np.arange(num_places, dtype=np.uint64) + np.uint64(first)
        mixed_places ^= self._salt
        mixed_places += np.uint64(GOLDEN_RATIO)
        drawn = finalise(mixed_places)
        num_reached = np.zeros(num_places, dtype=np.uint8)
        for limit in self._limits:
            num_reached += (drawn >= limit).view(np.uint8)
        return num_reached.tobytes()


class RecordedAcceptance(Acceptance):
    """What each step of a recorded request drafted and accepted, in order.

    The accepted counts cut a request's output into pieces of one token and its accepted drafts. A
    step ends where the piece ends that it begins in, and its drafts are what the piece's drafts
    have left. If a request has more steps than were recorded, the list starts again; one that was
    not recorded takes the list of another, chosen by its seed.

    Example: 2, 0, 1 were accepted. After its first token, the output has pieces of 3, 1 and 2
    tokens, which end at 4, 5 and 7 tokens, then again of 3, 1 and 2, which end at 10, 11 and 13.
    """

    def __init__(
        self,
        accepted: Mapping[str, Sequence[int]],
        proposed: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Take the lists of at least one request.

        By request, what each step accepted, and how many tokens were drafted for it; None: as many
        as the server asks for.
        """
        self._ends: Final = {
            rid: list(accumulate([1 + count for count in each])) for rid, each in accepted.items()
        }
        self._rids: Final = list(accepted)
        self._proposed: Final = proposed

    def num_proposed(self, rid: str, seed: int, place: int, most: int) -> int:
        if self._proposed is None:
            return most
        rid = self._recorded(rid, seed)
        begin, at = 0, self._place_in_list(rid, place)
        for number, end in enumerate(self._ends[rid]):
            if end > at:
                return min(max(self._proposed[rid][number] - (at - begin), 0), most)
            begin = end
        return 0

    def num_accepted(self, rid: str, seed: int, place: int, most: int) -> int:
        rid = self._recorded(rid, seed)
        at = self._place_in_list(rid, place)
        for end in self._ends[rid]:
            if end > at:
                return min(end - at - 1, most)
        return 0

    def _recorded(self, rid: str, seed: int) -> str:
        """The request whose list holds for a request."""
        if rid in self._ends:
            return rid
        return self._rids[mixed(seed & _MASK) % len(self._rids)]

    def _place_in_list(self, rid: str, place: int) -> int:
        return (place - 1) % self._ends[rid][-1]


@dataclass(frozen=True, slots=True)
class Speculation:
    """How a server drafts.

    Attributes:
        method: the server's name for the method.
        num_tokens: draft tokens of a row in a step, at most.
        acceptance: how many tokens are drafted and accepted.
        lookup_min, lookup_max: tokens of the shortest and of the longest n-gram that is looked up.
    """

    method: str
    num_tokens: int
    acceptance: Acceptance
    lookup_min: int = 5
    lookup_max: int = 5


def probability_for(mean_length: float, num_drafts: int) -> float:
    """The probability, the same for each draft token, with which steps yield `mean_length` tokens.

    A step that verifies k draft tokens, each accepted with probability a, yields
    1 + a + a**2 + ... + a**k tokens on average.

    `mean_length` is from 1 to 1 + `num_drafts`.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum([middle**i for i in range(num_drafts + 1)]) < mean_length:
            low = middle
        else:
            high = middle
    return high
