"""The pool of a part of the KV memory, of windows or of states: a number of free units.

A unit is the KV of one token in the layers with a window, or one state. Units have no ids: the real
runner serves no such model.
"""

from sim.core.errors import InvariantError


class UnitPool:
    """Free units of the pool.

    Attributes:
        num_units: size of the pool.
        free_units: units that are free.
    """

    def __init__(self, num_units: int) -> None:
        self.num_units = self.free_units = num_units

    def take(self, num_units: int) -> None:
        """Allocate units. Raises InvariantError if too few are free."""
        if num_units > self.free_units:
            raise InvariantError(
                f"{num_units} units taken from a part's pool, {self.free_units} free"
            )
        self.free_units -= num_units

    def free(self, num_units: int) -> None:
        """Give units back. Raises InvariantError if some were free already."""
        self.free_units += num_units
        if num_units < 0 or self.free_units > self.num_units:
            raise InvariantError(
                f"{num_units} units of a part's pool were freed, some were free already"
            )
