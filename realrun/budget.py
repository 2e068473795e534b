"""Time to spend, and how much of it is left."""

import math
import time
from collections.abc import Callable


class Budget:
    """Seconds to spend, from `began_s` on the clock."""

    def __init__(
        self, seconds: float | None, *, began_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total_s = math.inf if seconds is None else seconds
        self.clock = clock
        self._end_s = began_s + self.total_s

    def left_s(self) -> float:
        return self._end_s - self.clock()
