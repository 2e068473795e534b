"""What a scheduler family is: everything that tells servers of one engine from those of another."""

from typing import Any, ClassVar

from sim.engine.core import EngineCore
from sim.engine.page_pool import PagePool
from sim.engine.scheduler import BaseScheduler


class Family:
    """A base class; `sim.families.FAMILIES` maps names to instances.

    Methods import what they need when they are called, so that a run loads its own family alone.

    Attributes:
        name: as in `scheduler: {family: NAME}`.
    """

    name: ClassVar[str]

    def build(self, config: Any, pool: PagePool[Any]) -> BaseScheduler[Any]:
        """A scheduler with an empty queue and an empty cache.

        Args:
            config: settings of this family.
            pool: as many pages as the settings say; a family may keep its own instead.
        """
        raise NotImplementedError

    def check(self, engine: EngineCore) -> None:
        """Verify what only this family promises between two steps: its KV memory.

        Raises:
            InvariantError: naming what does not hold.
        """
