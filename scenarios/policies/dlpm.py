"""Deficit longest prefix match: the longest cached prefix first, of the tenants that have credit.

Rule: a tenant pays for its service: `prompt_weight` for each prompt token that was not cached,
`output_weight` for each output token. Of the tenants that have credit left, the request with the
longest cached prefix comes next. When nobody who waits has credit left, each of them gets
`quantum_tokens` more. A small quantum is fair, a large one finds more in the cache.

Source: S. Cao et al., "Locality-aware Fair Scheduling in LLM Serving", 2025 (arXiv 2501.14312).

What differs: tokens are paid for when the next pass begins. Prefixes are matched however long the
queue is; SGLang's own `lpm` is first come, first served beyond 128 requests.
"""

import heapq
from collections import deque

from sim.sglang.policies.policy import LongestPrefixMatch
from sim.sglang.served import Served


class DeficitLongestPrefixMatch(LongestPrefixMatch):
    """Orders by prefix, as far as the tenants' balances go."""

    longest_matched_queue = None

    def __init__(self, config, *, quantum_tokens=8192, prompt_weight=1.0, output_weight=2.0):
        super().__init__(config)
        self.quantum_tokens = quantum_tokens
        self.prompt_weight, self.output_weight = prompt_weight, output_weight
        self.balances = {}
        self._served = Served()

    def order(self, waiting, view):
        for given in self._served.since_last(waiting):
            computed = given.prompt_tokens - given.cached_tokens
            tenant = given.request.spec.tenant
            self.balances[tenant] -= self._price(computed, given.output_tokens)
        queues = {}
        for rank, request in enumerate(super().order(waiting, view)):
            queues.setdefault(request.spec.tenant, deque()).append((rank, request))
        self.balances.update({tenant: 0 for tenant in queues if tenant not in self.balances})
        self._refill(self.balances, queues)
        # What the pass would pay, and the quanta it would give, if it admitted them all.
        balances, ordered = {tenant: self.balances[tenant] for tenant in queues}, []
        while queues:
            heap = [
                (queue[0][0], tenant) for tenant, queue in queues.items() if balances[tenant] > 0
            ]
            heapq.heapify(heap)
            while heap:
                _, tenant = heapq.heappop(heap)
                _, request = queues[tenant].popleft()
                ordered.append(request)
                balances[tenant] -= self._price(request.prompt_len - request.matched_len, 0)
                if not queues[tenant]:
                    del queues[tenant]
                elif balances[tenant] > 0:
                    heapq.heappush(heap, (queues[tenant][0][0], tenant))
            self._refill(balances, queues)
        return ordered

    def _price(self, num_prompt, num_output):
        return self.prompt_weight * num_prompt + self.output_weight * num_output

    def _refill(self, balances, tenants):
        """Give quanta to all of these tenants, until one has credit."""
        most = max((balances[tenant] for tenant in tenants), default=1)
        num_quanta = 0 if most > 0 else -most // self.quantum_tokens + 1
        for tenant in tenants:
            balances[tenant] += num_quanta * self.quantum_tokens
