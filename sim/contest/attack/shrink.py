"""Makes a trace smaller: requests go for as long as one still suffers nearly as much."""

from collections.abc import Sequence

from sim.contest.attack.duel import Duel
from sim.contest.attack.streams import Row

# What must be left of the score.
_KEPT = 0.9


def smaller(duel: Duel, rows: Sequence[Row], score: float) -> tuple[list[Row], int]:
    """The rows that it takes, and how many traces were tried.

    First halves go, then quarters, and so on down to single requests (delta debugging, Zeller and
    Hildebrandt 2002); what is left has no request that could go alone.
    """
    left, num_tried = list(rows), 0
    size = max(1, len(left) // 2)
    while True:
        begin, has_gone = 0, False
        while begin < len(left) and len(left) > 1:
            tried = left[:begin] + left[begin + size :]
            outcome = duel.outcome(tried) if tried else None
            num_tried += 1
            if outcome is not None and outcome.score >= _KEPT * score:
                left, has_gone = tried, True
            else:
                begin += size
        if size == 1 and not has_gone:
            return left, num_tried
        size = max(1, size // 2)
