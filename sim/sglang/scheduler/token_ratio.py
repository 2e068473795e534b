"""The new-token ratio: the share of running requests' remaining output to reserve (rule 10)."""

from collections.abc import Iterable

from sim.sglang.config import SchedulerConfig


class NewTokenRatio:
    """Starts high, falls with every pure decode step, and is computed anew after a retraction."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._initial = min(config.init_new_token_ratio * config.schedule_conservativeness, 1.0)
        self._floor = min(self._initial * config.min_new_token_ratio_factor, 1.0)
        self._decay = (self._initial - self._floor) / config.new_token_ratio_decay_steps
        self._retract_decode_steps = config.retract_decode_steps
        self.current = self._initial

    def decay(self) -> None:
        self.current = max(self.current - self._decay, self._floor)

    def decay_steps(self, num_steps: int) -> list[float]:
        """Decay `num_steps` times; returns the ratio after each step.

        Each step is one subtraction, so rounding is the same as in single steps.
        """
        ratios = []
        for step in range(num_steps):
            self.decay()
            ratios.append(self.current)
            if self.current == self._floor:
                return ratios + [self._floor] * (num_steps - step - 1)
        return ratios

    def reset(self) -> None:
        """Return to the initial ratio; the scheduler calls this when it has no requests."""
        self.current = self._initial

    def after_retraction(self, remaining: Iterable[tuple[int, int]]) -> None:
        """Set the ratio from `(num_generated, max_new_tokens)` of each remaining request."""
        rows = list(remaining)
        num_generated = sum(generated for generated, _ in rows)
        num_limit = sum(limit for _, limit in rows)
        expected = num_generated + self._retract_decode_steps * len(rows)
        self.current = min(1.0, expected / (num_limit + 1))
