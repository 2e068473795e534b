"""How often intervals of fitted servers hold, on runs that were not fitted."""

import math

import numpy as np

from silicon.fitted import VLLM, Judged, board, judge_files


def one(num_fitted, away, error, half):
    return Judged(num_fitted, away, np.array([error, error]), np.array([half, math.nan]))


def test_board_counts_whose_means_are_inside():
    """By how many runs were fitted and whether the load was; those too far away are counted."""
    judged = [one(1, 0.0, 0.1, 0.2), one(1, 0.05, -0.3, 0.2), one(2, 1.0, 0.0, math.log(1.5)),
              one(2, 3.0, 0.0, 1.0)]  # fmt: skip
    lines = [line.strip("| ").split(" | ") for line in board({"a": judged}).splitlines()[2:]]
    assert lines == [
        ["a", "one", "the same", "1 of 2 (±22%)", "-"],
        ["a", "several", "others", "1 of 1 (±50%)", "-"],
        ["a", "all", "1 too far", "2 of 3 (±22%)", "-"],
    ]


def test_real_runs_that_were_not_fitted_are_inside():
    """A vLLM server at 4 and at 8 requests/s, judged at 12."""
    server = VLLM["vLLM 0.26, H100"]
    [judged] = judge_files(server, [server.files[0], server.files[5]], server.files[1:2])
    assert judged.num_fitted == 2
    assert 0.5 < judged.away < 1
    assert (np.abs(judged.errors) < judged.halves).all()
