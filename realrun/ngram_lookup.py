"""Drafts by n-gram lookup: the tokens that followed the same n-gram earlier in the request.

As `_find_longest_matched_ngram_and_propose_tokens` of vLLM 0.19.0 and 0.33.0
(v1/spec_decode/ngram_proposer.py) chooses them.
"""

import numpy as np

from sim.core.arrays import Int64

_NOTHING = np.empty(0, dtype=np.int64)


def ngram_drafts(tokens: Int64, shortest: int, longest: int, most: int) -> Int64:
    """Draft tokens to follow a request's tokens; empty if no n-gram is found.

    The last n tokens are looked up among the tokens before, for the largest n from `shortest` to
    `longest` that is found. If they are found in several places, the first one counts. The drafts
    are the tokens behind it: fewer than `most` if it is near the end.

    Example: 7 8 9 1 7 8 9 2 7 8 9, looked up with n up to 3, finds 7 8 9 at the beginning. The
    drafts are 1 7 8 if there are 3.

    Args:
        tokens: prompt and output of the request, so far.
        shortest: tokens of the shortest n-gram.
        longest: tokens of the longest n-gram.
        most: number of draft tokens, at most.
    """
    num_before = len(tokens) - 1
    # For each earlier token: how many tokens up to it equal the last ones of the request.
    num_equal = np.zeros(max(num_before, 0), dtype=np.int64)
    goes_on = np.ones(max(num_before, 0), dtype=np.bool_)
    for back in range(min(longest, num_before)):
        goes_on[:back] = False
        goes_on[back:] &= tokens[: num_before - back] == tokens[num_before - back]
        num_equal += goes_on
    if not len(num_equal) or num_equal.max() < shortest:
        return _NOTHING
    begin = int(num_equal.argmax()) + 1
    return tokens[begin : begin + most]
