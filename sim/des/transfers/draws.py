"""Which attempts to transfer fail: draws that depend on seed, request and attempt alone."""

from hashlib import blake2b

from sim.core.splitmix import GOLDEN_RATIO, mixed

_MASK = (1 << 64) - 1


class FailureDraws:
    """Draws, for each request, whether its next attempt fails."""

    def __init__(self, failure_rate: float, seed: int) -> None:
        self._limit = round(failure_rate * (1 << 64))
        self._seed = mixed(seed & _MASK)
        # Draws that each request has had. Those of a request are ordered in time.
        self._num_draws: dict[str, int] = {}

    def next_fails(self, rid: str) -> bool:
        """Draw for the request's next attempt."""
        if not self._limit:
            return False
        number = self._num_draws.get(rid, 0)
        self._num_draws[rid] = number + 1
        name = int.from_bytes(blake2b(rid.encode(), digest_size=8).digest(), "big")
        counter = (name ^ self._seed) + number * GOLDEN_RATIO
        return mixed(counter & _MASK) < self._limit
