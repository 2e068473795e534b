"""Virtual token counter: next comes a request of the tenant that has been served least so far.

Rule: each tenant has a counter of the service it has received: `prompt_weight` for each prompt
token when the request is admitted, `output_weight` for each output token when it is generated. A
tenant that comes back after a pause is lifted to the lowest counter of those that wait, so that
nobody saves up service; if nobody waits, to the counter of the tenant whose request left the queue
last.

Source: Y. Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024 (arXiv 2401.00588).

What differs: tokens and arrivals are counted when the next pass begins, not one by one. `weights`
gives a tenant more than its equal share, as the paper's weighted form does.
"""

import heapq
from collections import deque

from sim.sglang.policies.policy import CacheBlind
from sim.sglang.served import Served


class VirtualTokenCounter(CacheBlind):
    """Orders by the tenants' counters; a tenant's own requests go in order of arrival."""

    def __init__(self, config, *, prompt_weight=1.0, output_weight=2.0, weights=None):
        super().__init__(config)
        self.prompt_weight, self.output_weight = prompt_weight, output_weight
        self.weights = weights or {}
        self.counters = {}
        self._served = Served()
        self._ordered = []
        self._left_last = None

    def order(self, waiting, view):
        for given in self._served.since_last(waiting):
            self._charge(self.counters, given.request, given.prompt_tokens, given.output_tokens)
        self._lift(waiting)
        queues = {}
        for request in sorted(waiting, key=lambda request: request.spec.arrival_ns):
            queues.setdefault(request.spec.tenant, deque()).append(request)
        # What the pass would have charged, if it admitted them all.
        counters, self._ordered = dict(self.counters), []
        heap = [self._place(tenant, queue, counters) for tenant, queue in queues.items()]
        heapq.heapify(heap)
        while heap:
            *_, tenant = heapq.heappop(heap)
            request = queues[tenant].popleft()
            self._ordered.append(request)
            self._charge(counters, request, request.prompt_len, 0)
            if queues[tenant]:
                heapq.heappush(heap, self._place(tenant, queues[tenant], counters))
        return self._ordered

    def _place(self, tenant, queue, counters):
        """Tenants are served in this order: by counter, then by their oldest requests."""
        return counters[tenant], queue[0].spec.arrival_ns, tenant

    def _charge(self, counters, request, num_prompt, num_output):
        tenant = request.spec.tenant
        service = self.prompt_weight * num_prompt + self.output_weight * num_output
        counters[tenant] += service / self.weights.get(tenant, 1)

    def _lift(self, waiting):
        """Note who has left the queue, and lift the counters of tenants that come (back) to it."""
        still = set(map(id, waiting))
        for request in self._ordered:
            if id(request) not in still:
                self._left_last = request.spec.tenant
        known = set(map(id, self._ordered))
        present = {request.spec.tenant for request in waiting if id(request) in known}
        for request in waiting:
            tenant = request.spec.tenant
            if tenant not in present:
                others = present or {self._left_last or tenant}
                lowest = min(self.counters.get(other, 0) for other in others)
                self.counters[tenant] = max(self.counters.get(tenant, 0), self._floor(lowest))
                present.add(tenant)

    def _floor(self, lowest):
        """Where a tenant joins those of which `lowest` is the lowest counter."""
        return lowest
