"""Links, and the rates of the flows that share them: max-min fairness in whole numbers.

A flow crosses the outgoing link of its source, the incoming link of its target and, if the fabric
has a limit, the fabric that all servers share. Rates are max-min fair: no flow could be faster
unless a flow that is no faster became slower. So each flow is held up by a full link on which no
other flow is faster.

Rates, and the bytes that are left, are whole numbers of small units. So results are the same on
every machine, and do not depend on the order of sums. A full link leaves less than one unit of rate
for each of its flows unused.
"""

from heapq import heapify, heappop, heappush

from sim.core.errors import InvariantError

# The unit of rates is 2**-24 bytes a nanosecond, about 60 bytes a second. That of bytes is the same
# part of a byte.
_SHIFT = 24
# Keys for sorting are a link's share, then its number.
_NUMBER_BITS = 20
_NUMBERS = (1 << _NUMBER_BITS) - 1


_NO_TIME = 1 << 63


def rate_of(gb_s: float) -> int:
    """A bandwidth in units of rate; a gigabyte a second is a byte a nanosecond."""
    return round(gb_s * (1 << _SHIFT))


class Link:
    """One direction of a server's network interfaces, or the fabric.

    Attributes:
        number: counts the links of a network from 0.
        capacity: in units of rate; 0: no limit, which only the fabric may have.
        is_outgoing: bytes leave a server here.
        flows: the flows on the link, by number.
        num_bytes: that the flows carried which have ended.
    """

    __slots__ = (
        "_busy_ns",
        "_busy_since_ns",
        "capacity",
        "flows",
        "free",
        "is_outgoing",
        "num_bytes",
        "num_open",
        "number",
        "seen",
    )

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
        number: flows have different numbers.
        num_bytes: of the whole flow.
        rate: in units of rate.
        due_ns: when the last byte arrives, if the rate stays as it is.
    """

    __slots__ = (
        "due_ns",
        "left",
        "num_bytes",
        "number",
        "rate",
        "seen",
        "since_ns",
        "source",
        "target",
    )

    def __init__(self, number: int, source: Link, target: Link, num_bytes: int) -> None:
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
        # Less only on a link with more flows than units of rate.
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

        Args:
            fabric_rate: capacity of the fabric that all flows share; 0: no limit.
        """
        self.fabric = Link(-1, fabric_rate, is_outgoing=False)
        self._links: list[Link] = []
        self._changed: list[Link] = []
        self._pass = 0

    def link(self, capacity: int, *, is_outgoing: bool) -> Link:
        """Add a link with this capacity, in units of rate."""
        if capacity < 1 or len(self._links) == _NUMBERS:
            raise InvariantError(f"link {len(self._links)} has capacity {capacity}")
        link = Link(len(self._links), capacity, is_outgoing=is_outgoing)
        self._links.append(link)
        return link

    def add(self, flow: Flow, now_ns: int) -> None:
        """A flow begins. Call `share` before time passes."""
        flow.rate = 0
        flow.left = flow.num_bytes << _SHIFT
        flow.since_ns = now_ns
        flow.source.add(flow, now_ns)
        flow.target.add(flow, now_ns)
        if self.fabric.capacity:
            self.fabric.add(flow, now_ns)
        self._changed.append(flow.source)
        self._changed.append(flow.target)

    def remove(self, flow: Flow, now_ns: int) -> None:
        """A flow ends, also before its last byte. Call `share` before time passes."""
        left = max(flow.left - flow.rate * (now_ns - flow.since_ns), 0)
        num_bytes = flow.num_bytes - (left >> _SHIFT)
        source, target, fabric = flow.source, flow.target, self.fabric
        source.remove(flow, now_ns)
        source.num_bytes += num_bytes
        target.remove(flow, now_ns)
        target.num_bytes += num_bytes
        if fabric.capacity:
            fabric.remove(flow, now_ns)
            fabric.num_bytes += num_bytes
        self._changed.append(source)
        self._changed.append(target)

    def share(self, now_ns: int) -> list[Flow]:
        """Compute all rates that can have changed since the last call.

        Returns:
            The flow that ends first in each part of the network that was computed. Parts share no
            flow with others, so a part's rates stay until it is computed again.
        """
        changed, self._changed = self._changed, []
        self._pass += 1
        if changed and self.fabric.flows:
            return [self._fill([link for link in self._links if link.flows], now_ns)]
        return [
            self._fill(self._part_with(link), now_ns)
            for link in changed
            if link.flows and link.seen != self._pass
        ]

    def _part_with(self, start: Link) -> list[Link]:
        """The links that share a flow with this one, those that share a flow with them, ..."""
        visit = self._pass
        start.seen = visit
        part = [start]
        for link in part:
            for flow in link.flows.values():
                other = flow.target if link.is_outgoing else flow.source
                if other.seen != visit:
                    other.seen = visit
                    part.append(other)
        return part

    def _fill(self, part: list[Link], now_ns: int) -> Flow:
        """Set the rates of all flows on these links; returns the flow that ends first.

        All rates grow together until a link is full. The flows on it keep the rate that they have
        then, and all others go on growing. Links fill up in the order of their shares: what is free
        on them, divided by the number of flows that still grow. Shares never fall meanwhile.
        """
        num_open, shares = _opened(part)
        is_limited = self.fabric.capacity > 0
        free, first_ns = self.fabric.capacity, _NO_TIME
        first: Flow | None = None
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
                if flow.seen == self._pass:
                    continue
                flow.seen = self._pass
                num_open -= 1
                flow.go_on(share, now_ns)
                if flow.due_ns < first_ns:
                    first, first_ns = flow, flow.due_ns
            free -= share * (num_before - num_open)
        if first is None:
            raise InvariantError("a part of the network without flows")
        return first


def _opened(part: list[Link]) -> tuple[int, list[int]]:
    """Make the links ready to be filled: the number of their flows, and a heap of the shares."""
    num_flows = 0
    shares: list[int] = []
    for link in part:
        link.free = link.capacity
        link.num_open = len(link.flows)
        shares.append((link.free // link.num_open) << _NUMBER_BITS | link.number)
        if link.is_outgoing:
            num_flows += link.num_open
    heapify(shares)
    return num_flows, shares
