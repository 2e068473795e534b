"""Tool calls: programs in the order in which they began, and KV that is kept while a tool works.

An agent's program is its session: requests, each but the last of which ends in a tool call.
Programs in order is first come, first served by when the program's first request came. The two
rules below go by that order, and say for how long KV is kept after an answer that calls a tool.

Continuum: requests whose KV is kept go before all others. KV is kept for the time t with the
largest

    P(the tool takes at most t) x (queue x eta + prefill) - t

`prefill` is how long the conversation would take to compute again. `queue` is how long the last 100
requests waited that followed a tool call and whose KV was not kept. P is counted over the tool
calls so far; up to `history` of them, P is exponential with a mean of one second. eta says how well
the past of a program tells its future: minus the correlation, over the programs that have ended, of
how many requests it had sent and how many were still to come; 1 until it is known.

InferCept: KV is kept until keeping it has wasted as much memory, in tokens times seconds, as
computing it again would: as long as that takes, both its own tokens and those of all running
requests are held for nothing.

Sources: H. Li et al., "Continuum: Efficient and Robust Multi-Turn LLM Agent Scheduling with KV
Cache Time-to-Live", 2025 (arXiv 2511.02230); R. Abhyankar et al., "InferCept: Efficient Intercept
Support for Augmented Large Language Model Inference", ICML 2024 (arXiv 2402.01869).

What differs: tools have no names here, so that the times of a tenant's tools are counted together.
Continuum's paper does not say over how many requests `queue` is a mean. InferCept also moves KV to
host memory, and computes it again in chunks that fill up other steps: neither is done here, and
others hold their memory for the whole time. KV that is kept is let go early only if nothing else
can go on; InferCept gives it up before running requests lack memory.
"""

from bisect import bisect_right, insort
from collections import deque
from math import log
from statistics import fmean

from sim.sglang.policies.policy import CacheBlind
from sim.sglang.served import Served


class ProgramsInOrder(CacheBlind):
    """First come, first served by programs.

    To compute n thousand tokens takes `prefill_ms` x n + `square_ms` x n x n. The defaults are for
    Llama-3.1-8B on an A100 at 60 % of its peak.
    """

    def __init__(self, config, *, prefill_ms=85.0, square_ms=1.4):
        super().__init__(config)
        self.prefill_ms, self.square_ms = prefill_ms, square_ms
        self.began_ns = {}
        self._served = Served()

    def order(self, waiting, view):
        self.note(self._served.since_last(waiting), waiting)
        return sorted(waiting, key=lambda request: self.place(request, view))

    def note(self, news, waiting):
        for request in waiting:
            self.began_ns.setdefault(program_of(request), request.spec.arrival_ns)

    def place(self, request, view):
        return self.began_ns[program_of(request)]

    def prefill_s(self, request):
        thousands = request.num_tokens / 1000
        return (self.prefill_ms + self.square_ms * thousands) * thousands / 1000


class InferCept(ProgramsInOrder):
    """Keeps KV until that has wasted as much memory as to compute it again would."""

    def keep_ns(self, request, now_ns):
        if not request.spec.calls_tool:
            return 0
        others = sum(other.num_tokens for other in self._served.running)
        return round(1e9 * self.prefill_s(request) * (1 + others / request.num_tokens))


class Continuum(ProgramsInOrder):
    """Keeps KV for a time to live; `history`: tool calls that must be known to count them."""

    def __init__(self, config, *, history=100, **prefill):
        super().__init__(config, **prefill)
        self.history = history
        self.queue_s = deque(maxlen=100)
        self.tools_s = {}
        self.programs = Programs()
        self._called_ns, self._kept, self._follows = {}, frozenset(), set()

    def place(self, request, view):
        return program_of(request) not in view.kept, super().place(request, view)

    def order(self, waiting, view):
        ordered = super().order(waiting, view)
        self._kept = view.kept
        return ordered

    def note(self, news, waiting):
        super().note(news, waiting)
        for request in [given.request for given in news if given.prompt_tokens]:
            if request.rid in self._follows and program_of(request) not in self._kept:
                self.queue_s.append((request.scheduled_ns - request.spec.arrival_ns) / 1e9)
            self._follows.discard(request.rid)
        for request in waiting:
            called_ns = self._called_ns.pop(program_of(request), None)
            if called_ns is not None:
                self._follows.add(request.rid)
                tool_s = (request.spec.arrival_ns - called_ns) / 1e9
                insort(self.tools_s.setdefault(request.spec.tenant, []), tool_s)

    def keep_ns(self, request, now_ns):
        program = program_of(request)
        self.programs.answered(program, is_over=not request.spec.calls_tool)
        if not request.spec.calls_tool:
            return 0
        self._called_ns[program] = now_ns
        queue_s = fmean(self.queue_s) if self.queue_s else 0.0
        benefit_s = queue_s * self.programs.eta + self.prefill_s(request)
        tools_s = self.tools_s.get(request.spec.tenant, [])
        if len(tools_s) <= self.history:
            return round(1e9 * max(log(benefit_s), 0.0))
        return round(1e9 * best_time_s(tools_s, benefit_s))


class Programs:
    """How many requests programs have sent, and what that says of those to come."""

    def __init__(self):
        self._sent = {}
        # Of all requests of programs that have ended: how many, and the sums of those sent (x),
        # those to come (y), x * x, y * y and x * y.
        self._sums = [0] * 6

    def answered(self, program, *, is_over):
        num_sent = self._sent[program] = self._sent.get(program, 0) + 1
        if not is_over:
            return
        del self._sent[program]
        for x in range(1, num_sent + 1):
            y = num_sent - x
            terms = (1, x, y, x * x, y * y, x * y)
            self._sums = [total + term for total, term in zip(self._sums, terms, strict=True)]

    @property
    def eta(self):
        n, x, y, xx, yy, xy = self._sums
        spread = (n * xx - x * x) * (n * yy - y * y)
        return (x * y - n * xy) / spread**0.5 if spread else 1.0


def program_of(request):
    return request.spec.session or request.rid


def best_time_s(tools_s, benefit_s):
    """The time to live with the largest reward, the shortest of equal ones; 0: none is worth it."""
    best_s, best = 0.0, 0.0
    for rank in range(bisect_right(tools_s, benefit_s)):
        reward = (rank + 1) / len(tools_s) * benefit_s - tools_s[rank]
        if reward > best:
            best_s, best = tools_s[rank], reward
    return best_s
