"""Shortest prompt first, with aging: a score for a short prompt plus a score for the time waited.

Rule: score = length_weight / (1 + prompt / length_median) + time_weight x waited / time_median, and
the highest score goes first. Waiting counts without a limit, so a long prompt is passed over only
for a time: by (length_weight / time_weight) x time_median at the most.

Source: the queue policy SJF that was proposed for TensorRT-LLM in its pull request 12423. The
defaults are the proposal's.

What differs: nothing that a simulation could show. The scores are made anew in each pass.
"""

from sim.sglang.policies.policy import CacheBlind


class ShortestPromptAging(CacheBlind):
    """Highest score first; equal ones keep their order."""

    def __init__(
        self, config, *, length_median=32768, time_median_s=5.0, length_weight=0.5, time_weight=0.5
    ):
        super().__init__(config)
        self.length_median, self.length_weight = length_median, length_weight
        self.per_ns = time_weight / (time_median_s * 1e9)

    def order(self, waiting, view):
        def score(request):
            of_length = self.length_weight / (1 + request.prompt_len / self.length_median)
            return of_length + self.per_ns * (view.now_ns - request.spec.arrival_ns)

        return sorted(waiting, key=score, reverse=True)
