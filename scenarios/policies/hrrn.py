"""Highest response ratio next: first the request that has waited longest for the work it is.

Rule: the response ratio is (time waited + time of the work) / time of the work. Short work goes
first, and long work is not passed over for ever, because its ratio grows while it waits.

Source: P. Brinch Hansen, "Short-term scheduling in multiprogramming systems", SOSP 1971.

What differs: the work is estimated, as that of the prompt and, where the traffic has predictions,
of the predicted output. SGLang's own policy `hrrn` (its pull request 32911) measures both times in
prefill tokens, and the work in tokens that are not cached.
"""

from sim.sglang.policies.policy import CacheBlind


class HighestResponseRatio(CacheBlind):
    """Highest ratio first; equal ones keep their order."""

    def __init__(self, config, *, prompt_token_us=100.0, output_token_us=0.0):
        super().__init__(config)
        self.prompt_token_ns = 1000 * prompt_token_us
        self.output_token_ns = 1000 * output_token_us

    def order(self, waiting, view):
        def ratio(request):
            work_ns = self.prompt_token_ns * request.prompt_len
            work_ns += self.output_token_ns * (request.spec.predicted_output_tokens or 0)
            return (view.now_ns - request.spec.arrival_ns) / max(work_ns, 1)

        return sorted(waiting, key=ratio, reverse=True)
