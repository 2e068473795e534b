"""How sure an estimate from requests' times is, when requests that run together share errors.

A step that takes longer than it should is in the time of every request it served. So what a
request's time is off by is taken as the sum, over that time, of errors that are independent from
moment to moment and the same for all. How large they are is in what the fit leaves over.
"""

import numpy as np

from calibrate.measured.equations import Solution, weights
from sim.core.arrays import Float64

# Moments are at most this part of the usual request, but no more than this many.
_PARTS = 8
_MOST_MOMENTS = 2_000
_MOST_CELLS = 40_000_000


def covariance(solution: Solution, start_s: Float64, end_s: Float64) -> Float64:
    """Covariance of the unknowns, shape [num_unknowns, num_unknowns].

    Args:
        solution: relative errors of times, and how they change with the unknowns.
        start_s: when each of these times began; shape [num_residuals].
        end_s: when it ended.
    """
    shared = _shared(start_s, end_s)
    weight = weights(solution.residuals)[:, None]
    weighted = (solution.instruments * weight).T
    moved: Float64 = np.linalg.pinv(weighted @ solution.slopes) @ weighted @ shared
    # As many are used up by the fit, whose slopes are known best without decisions.
    used: Float64 = np.linalg.pinv(weighted @ solution.instruments) @ weighted @ shared
    left_over = shared - solution.instruments @ used
    expected = float((weight * left_over**2).sum())
    found = float((weight[:, 0] * solution.residuals**2).sum())
    size = found / expected if expected else 0.0
    result: Float64 = size * (moved @ moved.T)
    return result


def _shared(start_s: Float64, end_s: Float64) -> Float64:
    """What an error of unit size in each moment makes of each relative time.

    Shape [num_residuals, num_moments].
    """
    first, last = float(start_s.min()), float(end_s.max())
    usual = float(np.median(end_s - start_s))
    wanted = int(np.ceil((last - first) / usual * _PARTS))
    num = max(1, min(wanted, _MOST_MOMENTS, _MOST_CELLS // len(start_s)))
    edges = np.linspace(first, last, num + 1)
    overlap = np.minimum(end_s[:, None], edges[1:]) - np.maximum(start_s[:, None], edges[:-1])
    length = (end_s - start_s)[:, None]
    shared: Float64 = np.maximum(overlap, 0.0) / (length * np.sqrt(edges[1] - edges[0]))
    return shared
