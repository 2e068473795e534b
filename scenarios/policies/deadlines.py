"""Deadlines for the first token: earliest deadline first, and least slack first.

Rules: a request's deadline is its arrival plus the TTFT that its tenant was promised. Earliest
deadline first goes by that time. Least slack first goes by the time that is left until then, less
the time that the prompt will take.

Sources: C. L. Liu and J. W. Layland, "Scheduling algorithms for multiprogramming in a
hard-real-time environment", Journal of the ACM 20(1), 1973; A. K. Mok, "Fundamental design problems
of distributed systems for the hard-real-time environment", MIT, 1983.

What differs: nothing is preempted, and prompts are prefilled together. `late_last` is an addition:
under overload both rules serve above all requests that are too late in any case; with it those go
after all others.
"""

from sim.sglang.policies.policy import CacheAware, CacheBlind


class Deadlines:
    """The promise: `ttft_ms` for all tenants that `tenants` does not name."""

    def __init__(self, config, *, ttft_ms=1000.0, tenants=None, late_last=False):
        super().__init__(config)
        self.ttft_ms, self.tenants, self.late_last = ttft_ms, tenants or {}, late_last

    def slack_ns(self, request, now_ns):
        promised_ms = self.tenants.get(request.spec.tenant, self.ttft_ms)
        return request.spec.arrival_ns + round(1e6 * promised_ms) - now_ns

    def order(self, waiting, view):
        def key(request):
            slack_ns = self.slack_ns(request, view.now_ns)
            return self.late_last and slack_ns < 0, slack_ns

        return sorted(waiting, key=key)


class EarliestDeadlineFirst(Deadlines, CacheBlind):
    """Earliest deadline first; equal ones keep their order."""


class LeastSlack(Deadlines, CacheAware):
    """Least slack first; a prompt takes `prompt_token_us` for each token that is not cached."""

    defers_shared_prefixes = False

    def __init__(self, config, *, prompt_token_us=100.0, **promise):
        super().__init__(config, **promise)
        self.prompt_token_ns = 1000 * prompt_token_us

    def slack_ns(self, request, now_ns):
        work_ns = self.prompt_token_ns * (request.prompt_len - request.matched_len)
        return super().slack_ns(request, now_ns) - work_ns
