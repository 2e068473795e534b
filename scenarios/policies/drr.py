"""Deficit round robin: tenants take turns, and a turn is worth a fixed amount of service.

Rule: in each round a tenant may start requests until the service of its requests has used up the
round's quantum; what it took too much is missing in its next round. A tenant that has nothing to
send saves nothing up.

Source: M. Shreedhar and G. Varghese, "Efficient fair queueing using deficit round robin", SIGCOMM
1995, for packets of known sizes.

What differs: nobody knows how long an output will be, so output tokens are charged when they are
generated, and a tenant may owe them (as in surplus round robin). Service is counted as in `vtc.py`:
a quantum of one token makes this the virtual token counter, nearly.
"""

from vtc import VirtualTokenCounter


class DeficitRoundRobin(VirtualTokenCounter):
    """Orders by rounds; within a round tenants go in the order in which they first came."""

    def __init__(self, config, *, quantum_tokens=4096, **service):
        super().__init__(config, **service)
        self.quantum_tokens = quantum_tokens
        self._ring = {}

    def _place(self, tenant, queue, counters):
        place = self._ring.setdefault(tenant, len(self._ring))
        return counters[tenant] // self.quantum_tokens, place, tenant

    def _floor(self, lowest):
        return lowest // self.quantum_tokens * self.quantum_tokens
