"""What limits prompts in a step besides budget, seats and memory."""

from typing import NamedTuple

from sim.vllm.config import VllmConfig
from sim.vllm.scheduler.aligned_chunks import AlignedChunks


class PromptLimits(NamedTuple):
    """What limits the prompts of one step.

    Attributes:
        largest_chunk: most tokens of one request; 0: no limit but the budget.
        are_deferred: no prompts; of the waiting requests only those that lack a single token.
        aligned: where chunks end; None: anywhere.
    """

    largest_chunk: int
    are_deferred: bool
    aligned: AlignedChunks | None = None


def largest_chunk(config: VllmConfig, num_requests: int) -> int:
    """The most tokens of one request in a step; 0: no limit but the budget (rule 3).

    Args:
        config: the settings.
        num_requests: requests that run or wait when the step is decided.
    """
    threshold = config.long_prefill_token_threshold
    if threshold and config.rules.spares_lone_request and num_requests <= 1:
        return 0
    if threshold and config.long_prefill_token_threshold_adaptive:
        return max(threshold, config.max_num_batched_tokens // num_requests)
    return threshold


def chunk_tokens(num_left: int, largest: int, budget: int) -> int:
    """How many of its `num_left` tokens a request may compute in this step."""
    if 0 < largest < num_left:
        num_left = largest
    return min(num_left, budget)


class PrefillCadence:
    """Keeps prompts out of the steps between two that have some (rule 14).

    Attributes:
        interval: `prefill_schedule_interval`. 1: prompts are in any step.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self._num_steps = 0
        # A whole interval ago, so that the first step may have prompts.
        self._last_prefill_step = -interval
        self._leaves_some_waiting = False

    def defers(self, decodes: bool) -> bool:
        """Whether the next step has no prompts; `decodes`: a running request is beyond its own."""
        since = self._num_steps + 1 - self._last_prefill_step
        return decodes and not self._leaves_some_waiting and since < self.interval

    def admitted(self, num_waiting: int) -> None:
        """A step has admitted requests; while any still wait, prompts may be in every step."""
        self._leaves_some_waiting = num_waiting > 0

    def decided(self, *, prefills: bool, num_steps: int = 1) -> None:
        """Count steps that compute something; `prefills`: some prompt tokens are among it."""
        self._num_steps += num_steps
        if prefills:
            self._last_prefill_step = self._num_steps

    def repeats(self, num_waiting: int) -> bool:
        """Whether decisions that only decode do not change what comes after them."""
        return self.interval == 1 or self._leaves_some_waiting == (num_waiting > 0)
