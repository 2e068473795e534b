"""Links, and the rates of the flows that share them: max-min fairness in whole numbers.

A flow crosses the outgoing link of its source, the incoming link of its target and, if the fabric
has a limit, the fabric that all servers share. Rates are max-min fair: no flow could be faster
unless a flow that is no faster became slower. So each flow is held up by a full link on which no
other flow is faster.

Rates, and the bytes that are left, are whole numbers of small units. So results are the same on
every machine, and do not depend on the order of sums. A full link leaves less than one unit of rate
for each of its flows unused.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from sim.core.errors import InvariantError


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What one link carried.

    Attributes:
        num_bytes: of all attempts that ended, also of those that failed.
        busy_ns: for how long there was at least one transfer on it.
    """

    num_bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class TransferStats:
    """What the transfers of a run did.

    Attributes:
        num_transfers: that arrived.
        num_bytes: of those.
        num_failed: given up.
        num_retries: attempts after the first.
        queue_ns: time in queues, of all together.
        total_ns: time from start to arrival, queues included, of all that arrived together.
        sent: the outgoing link of each sender, by replica.
        received: the incoming link of each receiver, by replica.
        fabric: what all servers share; None: it has no limit.
    """

    num_transfers: int
    num_bytes: int
    num_failed: int
    num_retries: int
    queue_ns: int
    total_ns: int
    sent: dict[int, LinkUse]
    received: dict[int, LinkUse]
    fabric: LinkUse | None


# The unit of rates is 2**-24 bytes a nanosecond, about 60 bytes a second. That of bytes is the same
# part of a byte.
_SHIFT = 24
# Keys for sorting are a link's share, then its number.
_NUMBER_BITS = 20
_NUMBERS = (1 << _NUMBER_BITS) - 1


# More than any rate.
UNLIMITED = 1 << 62


def rate_of(gb_s: float) -> int:
    """A bandwidth in units of rate; a gigabyte a second is a byte a nanosecond."""
    return round(gb_s * (1 << _SHIFT))


class NetworkLink:
    """One direction of a server's network interfaces, or the fabric.

    Attributes:
        number: counts the links of a network from 0.
        capacity: in units of rate; 0: no limit, which only the fabric may have.
        is_outgoing: bytes leave a server here.
        num_bytes: that the flows carried which have ended.
    """

    def __init__(self, number: int, capacity: int, *, is_outgoing: bool) -> None:
        self.number = number
        self.capacity = capacity
        self.is_outgoing = is_outgoing
        self.flows: dict[int, Flow] = {}
        self.num_bytes = 0
        self._busy_ns = 0
        self._busy_since_ns = 0
        # While rates are computed: what is left for the flows that have no rate yet, their number,
        # and the pass that met the link last.
        self.free = 0
        self.num_open = 0
        self.seen = 0

    def busy_ns(self, now_ns: int) -> int:
        """For how long there was at least one flow, until now."""
        return self._busy_ns + (now_ns - self._busy_since_ns if self.flows else 0)

    def share(self) -> int:
        """The rate at which the link is full, if its new flows have no other limit."""
        share, before = self.capacity // max(len(self.flows), 1), -1
        while share > before:
            free, num_faster, before = self.capacity, 0, share
            for flow in self.flows.values():
                if flow.rate < share:
                    free -= flow.rate
                else:
                    num_faster += 1
            if not num_faster:
                return UNLIMITED
            share = free // num_faster
        return share

    def add(self, flow: "Flow", now_ns: int) -> None:
        if not self.flows:
            self._busy_since_ns = now_ns
        self.flows[flow.number] = flow

    def remove(self, flow: "Flow", now_ns: int) -> None:
        del self.flows[flow.number]
        if not self.flows:
            self._busy_ns += now_ns - self._busy_since_ns


class Flow:
    """Bytes on their way.

    Attributes:
        num_bytes: of the whole flow.
        rate: in units of rate; UNLIMITED: not computed yet.
        due_ns: when the last byte arrives, if the rate stays as it is.
    """

    def __init__(
        self, number: int, source: NetworkLink, target: NetworkLink, num_bytes: int
    ) -> None:
        self.number = number
        self.num_bytes = num_bytes
        self.source = source
        self.target = target
        self.rate = 0
        self.due_ns = 0
        # In parts of a byte, at `since_ns`.
        self.left = 0
        self.since_ns = 0
        self.seen = 0

    def go_on(self, share: int, now_ns: int) -> None:
        """From now on the flow has this share of its links, until it gets another."""
        # The share is 0 only on a link with more flows than units of rate.
        rate = max(share, 1)
        self.source.free -= rate
        self.source.num_open -= 1
        self.target.free -= rate
        self.target.num_open -= 1
        if rate != self.rate:
            left = self.left = self.left - self.rate * (now_ns - self.since_ns)
            self.since_ns, self.rate = now_ns, rate
            self.due_ns = now_ns - (-left // rate) if left > 0 else now_ns


class Network:
    """All links, and the flows on them."""

    def __init__(self, fabric_rate: int = 0) -> None:
        """Begin without links.

        `fabric_rate` is the capacity of the fabric that all flows share; 0: no limit.
        """
        self.fabric = NetworkLink(-1, fabric_rate, is_outgoing=False)
        self._links: list[NetworkLink] = []
        self._pass = 0
        # Since the last call of `share`: links that flows have left or joined, those that flows
        # have joined, and the least rate of a flow that has left.
        self._changed: list[NetworkLink] = []
        self._joined: list[NetworkLink] = []
        self._level = UNLIMITED

    def link(self, capacity: int, *, is_outgoing: bool) -> NetworkLink:
        """Add a link with this capacity, in units of rate."""
        if capacity < 1 or len(self._links) == _NUMBERS:
            raise InvariantError(f"link {len(self._links)} has capacity {capacity}")
        link = NetworkLink(len(self._links), capacity, is_outgoing=is_outgoing)
        self._links.append(link)
        return link

    def add(self, flow: Flow, now_ns: int) -> None:
        """A flow begins. Call `share` before time passes."""
        flow.rate = UNLIMITED
        flow.due_ns = -1
        flow.left = flow.num_bytes << _SHIFT
        flow.since_ns = now_ns
        flow.source.add(flow, now_ns)
        flow.target.add(flow, now_ns)
        if self.fabric.capacity:
            self.fabric.add(flow, now_ns)
        ends = (flow.source, flow.target)
        self._changed += ends
        self._joined += ends

    def remove(self, flow: Flow, now_ns: int) -> None:
        """A flow ends, also before its last byte. Call `share` before time passes."""
        left = max(flow.left - flow.rate * (now_ns - flow.since_ns), 0)
        # A byte of which a part is left was not carried.
        num_bytes = flow.num_bytes + (-left >> _SHIFT)
        self._level = min(self._level, flow.rate)
        source, target, fabric = flow.source, flow.target, self.fabric
        source.remove(flow, now_ns)
        source.num_bytes += num_bytes
        target.remove(flow, now_ns)
        target.num_bytes += num_bytes
        if fabric.capacity:
            fabric.remove(flow, now_ns)
            fabric.num_bytes += num_bytes
        self._changed += (source, target)

    def share(self, now_ns: int) -> list[Flow]:
        """Compute all rates that can have changed since the last call.

        Returns, for each outgoing link that was looked at, the flow on it that ends first.
        """
        if not self._changed:
            return []
        part, shares, num_open = self._open()
        self._fill(shares, num_open, now_ns)
        return [_first(link) for link in part if link.is_outgoing and link.flows]

    def _open(self) -> tuple[list[NetworkLink], list[int], int]:
        """Find the flows whose rates are open.

        While all rates grow together, nothing differs from before until they reach the rate of a
        flow that has left, or until a link with a new flow is full. So slower flows keep their
        rates, and so do all flows that share no link with an open one.

        Returns:
            The links of open flows, a heap of those links by their shares, and the number of flows.
        """
        self._pass = visit = self._pass + 1
        level, self._level = self._level, UNLIMITED
        part: list[NetworkLink] = []
        if self.fabric.capacity:
            # All flows share a link.
            level, part = 0, self._links
        else:
            for link in self._changed:
                if link.seen != visit:
                    link.seen = visit
                    part.append(link)
            for link in self._joined:
                level = min(level, link.share())
        self._changed, self._joined = [], []
        num_flows = 0
        shares: list[int] = []
        for link in part:
            free, num_open = link.capacity, 0
            for flow in link.flows.values():
                if flow.rate < level:
                    free -= flow.rate
                    continue
                num_open += 1
                flow.seen = visit
                other = flow.target if link.is_outgoing else flow.source
                if other.seen != visit and level:
                    other.seen = visit
                    part.append(other)
            link.free, link.num_open = free, num_open
            if num_open:
                shares.append((free // num_open) << _NUMBER_BITS | link.number)
                num_flows += num_open
        heapify(shares)
        # Each is on two links.
        return part, shares, num_flows // 2

    def _fill(self, shares: list[int], num_open: int, now_ns: int) -> None:
        """Set the rates of the open flows.

        All rates grow together until a link is full. The open flows on it keep the rate that they
        have then, and all others go on growing. Links fill up in the order of their shares: what is
        free on them, divided by the number of their open flows. Shares never fall meanwhile.
        """
        free, visit = self.fabric.capacity, self._pass
        is_limited = free > 0
        while num_open:
            key = heappop(shares)
            full = self._links[key & _NUMBERS]
            if not full.num_open:
                continue
            share = full.free // full.num_open
            if share > key >> _NUMBER_BITS:
                heappush(shares, share << _NUMBER_BITS | full.number)
                continue
            if is_limited and free // num_open < share:
                share, full = free // num_open, self.fabric
            num_before = num_open
            for flow in full.flows.values():
                if flow.seen == visit:
                    flow.seen = 0
                    num_open -= 1
                    flow.go_on(share, now_ns)
            free -= share * (num_before - num_open)


def _first(link: NetworkLink) -> Flow:
    """The flow that ends first; of several, the one that began first."""
    first: Flow | None = None
    for flow in link.flows.values():
        if first is None or flow.due_ns < first.due_ns:
            first = flow
    if first is None:
        raise InvariantError(f"link {link.number} has no flows")
    return first
