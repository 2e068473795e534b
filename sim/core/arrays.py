"""Types of numpy arrays, and times of arrays in whole nanoseconds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.core.units import MAX_TIME_NS

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LONGEST_NS = float(MAX_TIME_NS)


def whole_ns(times_ns: NDArray[np.floating[Any]]) -> Int64:
    """The times, rounded; longer ones than the clock has become `MAX_TIME_NS`, which is refused."""
    whole: Int64 = np.rint(np.minimum(times_ns, _LONGEST_NS)).astype(np.int64)
    return whole
