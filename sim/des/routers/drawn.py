"""Routers that draw: policies `power_of_two` and `random` of SGLang's gateway (0.3.2)."""

from collections.abc import Sequence

import numpy as np

from sim.core.request import RequestSpec
from sim.des.routers.router import Replica


class PowerOfTwo:
    """Draws two replicas and sends the request to the less loaded one; the first drawn if equal.

    Args:
        random: what replicas are drawn from; equal generators give equal choices.
    """

    def __init__(self, *, random: "np.random.Generator") -> None:
        self._random = random

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        if len(replicas) == 1:
            return 0
        one = int(self._random.integers(len(replicas)))
        other = (one + 1 + int(self._random.integers(len(replicas) - 1))) % len(replicas)
        return one if replicas[one].num_unfinished <= replicas[other].num_unfinished else other


class RandomChoice:
    """Sends each request to a replica drawn at random; all are equally likely.

    Args:
        random: what choices are drawn from; equal generators give equal choices.
    """

    looks_at_loads = False

    def __init__(self, *, random: "np.random.Generator") -> None:
        self._random = random

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        return int(self._random.integers(len(replicas)))
