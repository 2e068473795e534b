"""Random routing: policy `random` of SGLang's gateway (sgl-model-gateway 0.3.2)."""

from collections.abc import Sequence

import numpy as np

from sim.core.request import RequestSpec
from sim.des.routers.router import Replica


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
