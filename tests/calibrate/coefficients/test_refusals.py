"""Which coefficients the results cannot tell."""

import numpy as np

from calibrate.coefficients.coefficient import Coefficient
from calibrate.coefficients.refusals import ROWS, STEP, alike


def test_requests_without_decode_steps_do_not_count():
    """Two requests decoded beside 4 and 40 others, a third had one token: the load did vary."""
    coefficients = [Coefficient(key, 0.0, 1.0, (1.0,)) for key in (STEP, ROWS)]
    slopes = np.array([[10.0, 40.0], [10.0, 400.0], [0.0, 0.0]])
    with np.errstate(all="raise"):
        assert alike(coefficients, slopes) is None
        assert alike(coefficients, np.zeros((3, 2))) is None
        found = alike(coefficients, np.array([[10.0, 40.0], [20.0, 80.0], [0.0, 0.0]]))
    assert found is not None
    assert found[1].key == ROWS
