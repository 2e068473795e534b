"""A mean step of measured runs, as far as time stamps show it.

While a request decodes, every step gives it one token. So the number of steps in which it decoded
is known from its tokens, and what else was in these steps follows from the other requests' stamps:
the tokens that they generated meanwhile, their contexts, and the prompts that were prefilled.
"""

from collections.abc import Sequence

import numpy as np

from calibrate.coefficients.coefficient import MeanStep
from calibrate.coefficients.runs import FitRun
from sim.core.arrays import Float64
from sim.core.units import NS_PER_S
from sim.runlog import NOT_YET_NS

# A mean needs no more requests than this of each run.
_MOST = 1_500


def mean_step(runs: Sequence[FitRun]) -> MeanStep:
    """The mean step of the requests that the fit sees."""
    sums = np.sum([_sums(run) for run in runs], axis=0)
    seconds, *amounts = (sums[[0, 2, 3, 4]] / sums[1]).tolist()
    return MeanStep(seconds, *amounts)


def _sums(run: FitRun) -> Float64:
    """Sums over the requests that decoded: of each one's decode time, and of its steps' contents.

    In order: seconds, steps, prefill tokens, rows, and context tokens. Row i, column j of a matrix
    is what request j did while request i decoded.
    """
    measured = run.measured
    rows = np.arange(len(measured)) < min(run.first, _MOST)
    known = (measured.first_token_ns != NOT_YET_NS) & (measured.finish_ns != NOT_YET_NS)
    rows &= known & (measured.output_tokens > 1) & (measured.finish_ns > measured.first_token_ns)
    begin = measured.first_token_ns[rows] / NS_PER_S
    end = measured.finish_ns[rows] / NS_PER_S
    prompt, gaps = measured.prompt_tokens[rows], measured.output_tokens[rows] - 1
    length = end - begin
    overlap = np.minimum(end[:, None], end) - np.maximum(begin[:, None], begin)
    overlap = np.maximum(overlap, 0.0)
    tokens = overlap * (gaps / length)
    # A row's context grows by one token a step; the one in the middle of the overlap is the mean.
    middle = np.maximum(begin[:, None], begin) + overlap / 2 - begin
    context = tokens * (prompt + (gaps / length) * middle)
    # A step with n rows is counted n times here, and so are the prompts prefilled in it.
    rows_a_step = tokens.sum() / gaps.sum()
    prefilled = prompt.sum() * rows_a_step
    return np.array([length.sum(), gaps.sum(), prefilled, tokens.sum(), context.sum()])
