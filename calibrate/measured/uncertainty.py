"""Standard errors of an estimate from requests whose errors are correlated.

A step that takes too long makes the time of every request in it longer. So the error of a request's
time is modelled as a sum of the errors of all moments in that time. These are independent from
moment to moment, and the same for all requests. The residuals of the fit say how large they are.
"""

import numpy as np

from calibrate.measured.equations import Solution, huber_weights
from sim.core.arrays import Float64

# Time is divided into moments: at least `_MOMENTS_PER_REQUEST` for the median request, as far as
# the number of moments and the matrix of requests and moments do not get too large.
_MOMENTS_PER_REQUEST = 8
_MOST_MOMENTS = 2_000
_MOST_CELLS = 40_000_000


def covariance(solution: Solution, start_s: Float64, end_s: Float64) -> Float64:
    """Covariance of the unknowns; shape [num_unknowns, num_unknowns].

    Args:
        solution: the relative errors of times, and the effect of the unknowns on them.
        start_s: when each of these times began; shape [num_residuals].
        end_s: when they ended.
    """
    shared = _shared(start_s, end_s)
    weight = huber_weights(solution.residuals)[:, None]
    weighted = (solution.instruments * weight).T
    moved: Float64 = np.linalg.pinv(weighted @ solution.slopes) @ weighted @ shared
    # The fit has removed a part of the errors: one direction for each unknown. The instruments are
    # the best estimate of these directions.
    used: Float64 = np.linalg.pinv(weighted @ solution.instruments) @ weighted @ shared
    left_over = shared - solution.instruments @ used
    expected = float((weight * left_over**2).sum())
    found = float((weight[:, 0] * solution.residuals**2).sum())
    size = found / expected if expected else 0.0
    result: Float64 = size * (moved @ moved.T)
    return result


def _shared(start_s: Float64, end_s: Float64) -> Float64:
    """The effect of a unit error in each moment on each relative time.

    Shape [num_residuals, num_moments].
    """
    first, last = float(start_s.min()), float(end_s.max())
    usual = float(np.median(end_s - start_s))
    wanted = int(np.ceil((last - first) / usual * _MOMENTS_PER_REQUEST))
    num = max(1, min(wanted, _MOST_MOMENTS, _MOST_CELLS // len(start_s)))
    edges = np.linspace(first, last, num + 1)
    overlap = np.minimum(end_s[:, None], edges[1:]) - np.maximum(start_s[:, None], edges[:-1])
    length = (end_s - start_s)[:, None]
    shared: Float64 = np.maximum(overlap, 0.0) / (length * np.sqrt(edges[1] - edges[0]))
    return shared
