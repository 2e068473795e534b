"""Chooses tokens at random, on the device: temperature, top-k, top-p and min-p, with seeds.

A token depends on nothing but its row's logits, its request's settings and seed, and its position.
So an answer does not depend on the other rows of its batches; a request that was put back, and
computes a token again, draws the same one; and a draft token is accepted exactly if it is the one
that would have been drawn.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sim.core.arrays import Int64
from sim.core.tokens import GOLDEN_RATIO, mixed

# Below this the most likely token is taken, as SGLang 0.5.23 does (sampling/sampling_params.py).
_LEAST_TEMPERATURE = 1e-6
_UINT64 = (1 << 64) - 1
# Logits that are sampled from at a time.
_MAX_LOGITS = 1 << 22


class SamplingParams(NamedTuple):
    """How the tokens of a request are chosen.

    Attributes:
        temperature: divides the logits; 0: the most likely token is taken.
        top_p: only the most likely tokens that together have this probability, in the softmax of
            the divided logits, are drawn.
        top_k: only this number of most likely tokens is drawn; 0: any.
        min_p: only tokens that have at least this share of the most likely token's probability are
            drawn.
        seed: any number.
        banned: tokens that are not chosen for positions before `banned_before`.
    """

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    banned: tuple[int, ...] = ()
    banned_before: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether the most likely token is always taken, and none is banned."""
        return not (self.temperature or self.banned)

    @classmethod
    def of(cls, temperature: float, top_p: float, top_k: int, min_p: float, seed: int) -> Self:
        """The parameters for what a client has set."""
        if temperature < _LEAST_TEMPERATURE or top_k == 1:
            return cls(0.0)
        return cls(temperature, top_p, max(top_k, 0), min_p, seed)


class SamplingDraws(NamedTuple):
    """The settings of all rows that a step samples, on the device.

    Attributes:
        settings: float64 [5, num_samples]: temperature (0: the most likely token), top_p, top_k,
            min_p, and the number in [0, 1) that says which token is drawn.
        has_limits: some row has a top_p, top_k or min_p.
        banned: int64 [2, number], pairs of a row and a token that it must not choose; None: there
            are none.
    """

    settings: Tensor
    has_limits: bool
    banned: Tensor | None


def draws(
    params: Sequence[SamplingParams | None], positions: Int64, device: torch.device
) -> SamplingDraws | None:
    """Copy the settings to the device. On CUDA this only enqueues the copies.

    For each token that the step samples, `params` has those of its request (None: the most likely
    token is taken), and `positions` the token's position in its request. The result is None if all
    tokens are the most likely ones.
    """
    if not any(params):
        return None
    rows = np.zeros((5, len(params)))
    has_limits = False
    banned: list[tuple[int, int]] = []
    for row, (chosen, position) in enumerate(zip(params, positions.tolist(), strict=True)):
        if chosen is None:
            continue
        rows[:, row] = (*chosen[:4], uniform(chosen.seed, position))
        has_limits |= chosen.top_p < 1 or chosen.top_k > 0 or chosen.min_p > 0
        if position < chosen.banned_before:
            banned += [(row, token) for token in chosen.banned]
    # top_p 1 keeps every token, although rounding may bring the sum of probabilities above 1.
    rows[1, rows[1] >= 1] = 2
    pairs = _copied(np.array(banned, dtype=np.int64).T.copy(), device) if banned else None
    return SamplingDraws(_copied(rows, device), has_limits, pairs)


def _copied(numbers: NDArray[Any], device: torch.device) -> Tensor:
    host = torch.from_numpy(numbers)
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on seed and position alone."""
    return (mixed(mixed(seed & _UINT64) + position * GOLDEN_RATIO & _UINT64) >> 11) * 2.0**-53


def sample(logits: Tensor, drawn: SamplingDraws | None) -> Tensor:
    """One token for each row of logits [num_samples, vocab_size]; int64 [num_samples].

    `drawn` is the result of `draws`.
    """
    if drawn is None:
        return logits.argmax(dim=-1)
    if drawn.banned is not None:
        # A copy: a graph's logits stay as they are.
        never = torch.full((), -math.inf, dtype=logits.dtype, device=logits.device)
        logits = logits.index_put((drawn.banned[0], drawn.banned[1]), never)
    # Some rows at a time, because what is computed takes several times the memory of the logits.
    num_rows = max(_MAX_LOGITS // logits.shape[-1], 1)
    parts = zip(
        torch.split(logits, num_rows), torch.split(drawn.settings, num_rows, dim=1), strict=True
    )
    return torch.cat([_chosen(part, settings, drawn.has_limits) for part, settings in parts])


def _chosen(logits: Tensor, settings: Tensor, has_limits: bool) -> Tensor:
    temperature, top_p, top_k, min_p, number = (setting.unsqueeze(1) for setting in settings)
    is_random = temperature > 0
    divided = logits.double() / torch.where(is_random, temperature, 1)
    probabilities = torch.softmax(divided, dim=-1)
    if has_limits:
        probabilities = _kept(probabilities, top_p, top_k, min_p)
    sums = probabilities.cumsum(dim=-1)
    # The first token whose sum is above the number; one without probability is never the first.
    chosen = torch.searchsorted(sums, number * sums[:, -1:], right=True)
    chosen = chosen.clamp(max=logits.shape[-1] - 1)
    return torch.where(is_random, chosen, logits.argmax(dim=-1, keepdim=True)).squeeze(1)


def _kept(probabilities: Tensor, top_p: Tensor, top_k: Tensor, min_p: Tensor) -> Tensor:
    """The probabilities, 0 for tokens that are not drawn."""
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    places = torch.arange(ordered.shape[-1], device=ordered.device)
    before = ordered.cumsum(dim=-1) - ordered
    # As SGLang 0.5.23 does (layers/sampler.py): each limit looks at all tokens.
    keeps = (places < torch.where(top_k > 0, top_k, ordered.shape[-1])) & (before <= top_p)
    keeps &= ordered >= min_p * ordered[:, :1]
    keeps[:, 0] = True
    return probabilities * torch.zeros_like(keeps).scatter_(1, order, keeps)
