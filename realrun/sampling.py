"""Chooses tokens at random, on the device: temperature, top-k, top-p and min-p, with seeds.

A token depends on nothing but its row's logits, its request's settings and seed, and its position.
So an answer does not depend on the other rows of its batches; a request that was put back, and
computes a token again, draws the same one; and a draft token is accepted exactly if it is the one
that would have been drawn.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sim.core.arrays import Int64
from sim.core.splitmix import mixed

# Below it the most likely token is taken, as SGLang 0.5.23 does (sampling/sampling_params.py).
_LEAST_TEMPERATURE = 1e-6
_UINT64 = (1 << 64) - 1
_POSITION_FACTOR = 0x9E3779B97F4A7C15


class RandomTokens(NamedTuple):
    """How the tokens of a request are drawn.

    Attributes:
        temperature: divides the logits; above 0.
        top_p: only the most likely tokens that together have this probability, in the softmax of
            the divided logits, are drawn.
        top_k: only this number of most likely tokens is drawn; 0: any.
        min_p: only tokens with at least this share of the most likely token's probability are.
        seed: any number.
    """

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int


def random_tokens(
    temperature: float, top_p: float, top_k: int, min_p: float, seed: int
) -> RandomTokens | None:
    """How tokens are drawn; None: always the most likely one is taken."""
    if temperature < _LEAST_TEMPERATURE or top_k == 1:
        return None
    return RandomTokens(temperature, top_p, max(top_k, 0), min_p, seed)


class Draws(NamedTuple):
    """The settings of each row that a step samples, on the device: float64 [num_samples] each.

    Attributes:
        temperature: 0 for rows that take the most likely token.
        top_p, top_k, min_p: see `RandomTokens`.
        number: what says which token is drawn, from 0 up to 1.
        has_limits: some row has a top_p, top_k or min_p.
    """

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    min_p: Tensor
    number: Tensor
    has_limits: bool


def draws(
    settings: Sequence[RandomTokens | None], positions: Int64, device: torch.device
) -> Draws | None:
    """Copy the settings to the device. On CUDA this only enqueues the copy.

    Args:
        settings: for each token that the step samples, those of its request.
        positions: the position of each such token in its request; int64 [num_samples].
        device: the device.

    Returns:
        None if all tokens are the most likely ones.
    """
    if not any(settings):
        return None
    rows = np.zeros((5, len(settings)))
    has_limits = False
    for row, (chosen, position) in enumerate(zip(settings, positions.tolist(), strict=True)):
        if chosen is not None:
            rows[:, row] = (*chosen[:4], uniform(chosen.seed, position))
            has_limits |= chosen.top_p < 1 or chosen.top_k > 0 or chosen.min_p > 0
    # The sum of all probabilities may be a little above 1.
    rows[1, rows[1] >= 1] = 2
    host = torch.from_numpy(rows)
    if device.type == "cuda":
        host = host.pin_memory()
    temperature, top_p, top_k, min_p, number = host.to(device, non_blocking=True)
    return Draws(temperature, top_p, top_k, min_p, number, has_limits)


def uniform(seed: int, position: int) -> float:
    """A number from 0 up to 1 that depends on seed and position alone."""
    return (mixed(mixed(seed & _UINT64) + position * _POSITION_FACTOR & _UINT64) >> 11) * 2.0**-53


def sample(logits: Tensor, drawn: Draws | None) -> Tensor:
    """One token for each row.

    Args:
        logits: [num_samples, vocab_size].
        drawn: the result of `draws`.

    Returns:
        int64 [num_samples].
    """
    most_likely = logits.argmax(dim=-1)
    if drawn is None:
        return most_likely
    is_random = drawn.temperature > 0
    temperature = torch.where(is_random, drawn.temperature, 1).unsqueeze(1)
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    if drawn.has_limits:
        probabilities = _keep(probabilities, drawn)
    sums = probabilities.cumsum(dim=-1)
    wanted = (drawn.number.unsqueeze(1) * sums[:, -1:]).contiguous()
    # The first token whose sum is above the number; one without probability is never the first.
    chosen = torch.searchsorted(sums, wanted, right=True).squeeze(1)
    return torch.where(is_random, chosen.clamp(max=logits.shape[-1] - 1), most_likely)


def _keep(probabilities: Tensor, drawn: Draws) -> Tensor:
    """The probabilities, 0 for tokens that are not drawn."""
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    places = torch.arange(ordered.shape[-1], device=ordered.device)
    before = ordered.cumsum(dim=-1) - ordered
    num_kept = torch.where(drawn.top_k > 0, drawn.top_k, ordered.shape[-1]).unsqueeze(1)
    # As SGLang 0.5.23 does (layers/sampler.py): each limit looks at all tokens.
    keeps = (places < num_kept) & (before <= drawn.top_p.unsqueeze(1))
    keeps &= ordered >= drawn.min_p.unsqueeze(1) * ordered[:, :1]
    keeps[:, 0] = True
    return probabilities * torch.zeros_like(keeps).scatter_(1, order, keeps)
