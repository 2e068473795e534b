"""The new-token ratio: how much of the running requests' remaining output is reserved (rule 10)."""

from collections.abc import Iterable

from sim.sglang.config import SchedulerConfig


class NewTokenRatio:
    """Starts high, decays with every pure decode step, jumps after a retraction."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._initial = min(config.init_new_token_ratio * config.schedule_conservativeness, 1.0)
        self._floor = min(self._initial * config.min_new_token_ratio_factor, 1.0)
        self._decay = (self._initial - self._floor) / config.new_token_ratio_decay_steps
        self._retract_decode_steps = config.retract_decode_steps
        self.current = self._initial

    def decay(self) -> None:
        self.current = max(self.current - self._decay, self._floor)

    def decay_steps(self, num_steps: int) -> list[float]:
        """Decay so often; returns the ratio after each step.

        One subtraction a step: rounding must not depend on how many are taken at once.
        """
        ratios = []
        for step in range(num_steps):
            self.decay()
            ratios.append(self.current)
            if self.current == self._floor:
                return ratios + [self._floor] * (num_steps - step - 1)
        return ratios

    def reset(self) -> None:
        self.current = self._initial

    def after_retraction(self, remaining: Iterable[tuple[int, int]]) -> None:
        """Set from the remaining requests' `(num_generated, max_new_tokens)`."""
        rows = list(remaining)
        num_generated = sum(generated for generated, _ in rows)
        num_limit = sum(limit for _, limit in rows)
        expected = num_generated + self._retract_decode_steps * len(rows)
        self.current = min(1.0, expected / (num_limit + 1))
