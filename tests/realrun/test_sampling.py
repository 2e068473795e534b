"""Tokens are drawn with their probabilities, within their limits, and again in any company."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from realrun.tokens import sampling
from realrun.tokens.sampling import SamplingParams, draws, sample, uniform

CPU = torch.device("cpu")
LOGITS = torch.tensor([1.5, -1.0, 0.5, 1.0, -2.0, 0.0])

settings = st.builds(
    SamplingParams.of,
    temperature=st.sampled_from((0.0, 0.3, 1.0, 5.0)),
    top_p=st.sampled_from((0.4, 0.9, 1.0)),
    top_k=st.sampled_from((-1, 1, 2, 99)),
    min_p=st.sampled_from((0.0, 0.3)),
    seed=st.integers(-(1 << 63), 1 << 63),
)


def drawn(logits, rows, positions):
    return sample(logits, draws(rows, np.array(positions), CPU)).tolist()


@pytest.mark.parametrize("most", [1, 17, 1 << 22])
@given(st.lists(st.tuples(settings, st.integers(0, 999)), min_size=1, max_size=6))
def test_row_draws_the_same_token_alone_and_beside_others(most, rows):
    """However many rows are looked at together."""
    chosen, positions = zip(*rows, strict=True)
    logits = LOGITS * torch.arange(1, len(rows) + 1).unsqueeze(1)
    with patch.object(sampling, "_MAX_LOGITS", most):
        together = drawn(logits, chosen, positions)
    alone = [drawn(logits[[i]], [chosen[i]], [positions[i]])[0] for i in range(len(rows))]
    assert together == alone
    for row, token in enumerate(together):
        if chosen[row].is_plain:
            assert token == 0


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 2}, [0, 3]),
        # The probabilities are 0.41, 0.25, 0.15, 0.09 and less: 0.66 with the second one.
        ({"top_p": 0.6}, [0, 3]),
        ({"top_p": 0.7}, [0, 2, 3]),
        ({"min_p": 0.3}, [0, 2, 3]),
        ({"top_k": 3, "top_p": 0.6, "min_p": 0.5}, [0, 3]),
        ({"temperature": 0.5}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_tokens_are_drawn_with_their_probabilities(limits, kept):
    number = 4000
    how = SamplingParams(
        **{"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "seed": 7} | limits
    )
    expected = torch.zeros(6)
    expected[kept] = (LOGITS / how.temperature).softmax(0)[kept]
    expected /= expected.sum()
    tokens = drawn(LOGITS.repeat(number, 1), [how] * number, range(number))
    counts = np.bincount(tokens, minlength=6)
    assert set(np.flatnonzero(counts)) <= set(kept)
    # Five standard deviations; the seed is fixed.
    assert np.abs(counts / number - expected.numpy()).max() < 5 * 0.5 / number**0.5


def test_numbers_are_spread_over_seeds_and_positions():
    numbers = [uniform(seed, position) for seed in range(60) for position in range(60)]
    assert len(set(numbers)) == 3600
    assert np.abs(np.histogram(numbers, 6, (0, 1))[0] / 600 - 1).max() < 0.2


def test_banned_tokens_are_not_chosen_before_their_position():
    """Neither by rows that take the most likely token, nor by chance; beside rows without."""
    rows = [SamplingParams(t, seed=3, banned=(0, 3), banned_before=9) for t in (0.0, 5.0)] * 20
    early, late = ([*drawn(LOGITS.repeat(41, 1), [*rows, None], [at] * 41)] for at in (8, 9))
    assert early[0] == 2
    assert not {0, 3} & set(early[:-1])
    assert early[-1] == late[0] == late[-1] == 0
