"""Which settings are tried next: the protocol of searches, and the grid that tries them all."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import Protocol

from sim.sweep.objective import Score
from sim.sweep.space import Places, Space


class Search(Protocol):
    """Chooses settings to try, and learns their scores.

    Its choices depend on the space, its seed, and the scores that it was told, in their order.
    """

    def ask(self, count: int) -> list[Places]:
        """`count` settings that were never chosen before; fewer only if no others are left."""
        ...

    def tell(self, scores: Sequence[Score | None]) -> None:
        """The scores of the settings of the last `ask`, in their order; None: a setting failed."""
        ...


class GridSearch:
    """A `Search` that tries everything.

    Args:
        space: has a finite number of settings.
        first: the settings to try first; None: the first of the space.
    """

    def __init__(self, space: Space, first: Places | None) -> None:
        others = (places for places in space.all_places() if places != first)
        self._left = others if first is None else chain([first], others)

    def ask(self, count: int) -> list[Places]:
        return list(islice(self._left, count))

    def tell(self, scores: Sequence[Score | None]) -> None:
        """Ignore the scores: the order of a grid is fixed."""
