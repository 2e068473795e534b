"""Transfers of KV between servers: queues, latency, links that are shared, failures.

    start                                                             done
      | waits in the sender's queue | latency_s | bytes on the links  |

The bytes of transfers that share a link share its bandwidth (`sim.des.transfers.links`).
"""

from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from heapq import heappop, heappush
from math import isinf
from operator import attrgetter

from simpy.events import Event

from sim.core.errors import InvariantError
from sim.core.tokens import GOLDEN_RATIO, mixed
from sim.core.units import seconds_to_ns
from sim.des.clock import TRANSFER_END, Clock, TimedEvent
from sim.des.transfers.links import Flow, LinkUse, Network, NetworkLink, TransferStats, rate_of
from sim.latency.kv_memory import KvBytes
from sim.scenario.servers_section import TransferSection

_MASK = (1 << 64) - 1


class FailureDraws:
    """Draws, for each request, whether its next attempt fails."""

    def __init__(self, failure_rate: float, seed: int) -> None:
        self._limit = round(failure_rate * (1 << 64))
        self._seed = mixed(seed & _MASK)
        # Draws that each request has had. Those of a request are ordered in time.
        self._num_draws: dict[str, int] = {}

    def next_fails(self, rid: str) -> bool:
        """Draw for the request's next attempt."""
        if not self._limit:
            return False
        number = self._num_draws.get(rid, 0)
        self._num_draws[rid] = number + 1
        name = int.from_bytes(blake2b(rid.encode(), digest_size=8).digest(), "big")
        counter = (name ^ self._seed) + number * GOLDEN_RATIO
        return mixed(counter & _MASK) < self._limit


# The number of a replica, and the rank of it; 0 without ranks.
Peer = tuple[int, int]
_BY_NUMBER = attrgetter("number")
_UNUSED = LinkUse(0, 0)


class _Queue:
    """Transfers of one sender that are sent one after another."""

    def __init__(self) -> None:
        self.is_busy = False
        self.waiting: deque[_Transfer] = deque()


class _Transfer(Flow):
    """A transfer from its start to its end.

    While it flows, `due_ns` is when it ends; during its latency, when it begins to flow.
    """

    def __init__(
        self,
        number: int,
        source: NetworkLink,
        target: NetworkLink,
        rid: str,
        num_bytes: int,
        start_ns: int,
        ended: Callable[[bool], None],
    ) -> None:
        super().__init__(number, source, target, num_bytes)
        self.rid = rid
        self.start_ns = start_ns
        self.deadline_ns = -1
        self.due_ns = -1
        self.flows = self.has_arrived = False
        self.num_attempts = 0
        self.queue: _Queue | None = None
        self.ended = ended


def _window_bytes(size: KvBytes, prompt_tokens: int | None) -> int:
    return sum(
        (window if prompt_tokens is None else min(window, prompt_tokens)) * num_bytes
        for window, num_bytes in size.windows
    )


class Transfers:
    """All transfers of a deployment.

    Whatever happens is computed in events of priority `TRANSFER_END`. What happens at one time is
    computed together, and then told in the order in which the transfers were started. The order of
    calls at one time changes ends by no more than rounding does.
    """

    def __init__(
        self,
        env: Clock,
        settings: TransferSection,
        sizes: Callable[[int], KvBytes],
        seed: int = 0,
        *,
        send_queues: int = 0,
        num_ranks: Callable[[int], int] | None = None,
    ) -> None:
        """Begin without transfers.

        Args:
            env: the clock.
            settings: the scenario's section.
            sizes: the bytes that a receiving replica gets. Those of states and windows come with
                the last transfer of a request.
            seed: of the draws of failures.
            send_queues: queues of a sender if the section does not say.
            num_ranks: the number of ranks of a replica, which have equal shares of its links; None:
                each replica is one rank.
        """
        self._env = env
        self._sizes = sizes
        self._latency_ns = seconds_to_ns(settings.latency_s)
        timeout_s = settings.timeout_s
        self._timeout_ns = 0 if timeout_s is None else max(seconds_to_ns(timeout_s), 1)
        self._max_attempts = 1 + settings.max_retries
        self._draws = FailureDraws(settings.failure_rate, seed)
        fabric_rate = (
            0 if isinf(settings.fabric_limit_gb_s) else rate_of(settings.fabric_limit_gb_s)
        )
        # A link without a limit carries what the fabric can. 0: nothing has a limit.
        self._is_unlimited = isinf(settings.link_limit_gb_s)
        self._link_rate = fabric_rate if self._is_unlimited else rate_of(settings.link_limit_gb_s)
        self._network = Network(fabric_rate)
        given = settings.send_queues
        self._num_queues = send_queues if given is None else given
        self._num_ranks = num_ranks
        self._outgoing: dict[Peer, NetworkLink] = {}
        self._incoming: dict[Peer, NetworkLink] = {}
        self._queues: dict[tuple[Peer, int], _Queue] = {}
        self._under_way: dict[int, _Transfer] = {}
        # When something is due, and the number of a transfer. Entries that are out of date do not
        # match their transfer any more.
        self._due: list[tuple[int, int]] = []
        self._wakes_ns: set[int] = set()
        self._num_started = 0
        self._num_arrived = self._num_bytes = self._num_failed = self._num_retries = 0
        self._queue_ns = self._total_ns = 0

    def start(
        self,
        rid: str,
        source: Peer,
        target: Peer,
        num_tokens: int,
        *,
        is_last: bool,
        ended: Callable[[bool], None],
        prompt_tokens: int | None = None,
    ) -> None:
        """Send the KV of some tokens of a request; the transfer's queue and latency begin now.

        Args:
            rid: the request.
            source: what sends.
            target: what receives.
            num_tokens: how many; 0 is allowed.
            is_last: the request's state, if its model has one, is sent with these tokens.
            ended: called with True when the last byte has arrived, never before `start` returns, or
                with False if the transfer is given up.
            prompt_tokens: length of the prompt, for layers with windows; None: as long as they are.
        """
        now_ns, number = self._env.now_ns, self._num_started
        self._num_started += 1
        size = self._sizes(target[0])
        num_bytes = num_tokens * size.per_token
        if is_last:
            num_bytes += size.per_request + _window_bytes(size, prompt_tokens)
        if num_bytes < 0:
            raise InvariantError(f"{rid} sends {num_tokens} tokens")
        outgoing = self._link(self._outgoing, source, is_outgoing=True)
        incoming = self._link(self._incoming, target, is_outgoing=False)
        transfer = _Transfer(number, outgoing, incoming, rid, num_bytes, now_ns, ended)
        self._under_way[number] = transfer
        if self._timeout_ns:
            transfer.deadline_ns = now_ns + self._timeout_ns
            heappush(self._due, (transfer.deadline_ns, number))
        if not self._has_to_wait(transfer, source, target):
            self._attempt(transfer, now_ns)
        if self._due:
            self._wake_at(self._due[0][0])

    def _has_to_wait(self, transfer: _Transfer, source: Peer, target: Peer) -> bool:
        """Put a transfer into its sender's queue, if it has any; whether others are before it."""
        if not self._num_queues:
            return False
        key = (source, target[0] % self._num_queues)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        transfer.queue = queue
        waits, queue.is_busy = queue.is_busy, True
        if waits:
            queue.waiting.append(transfer)
        return waits

    def stats(self) -> TransferStats:
        """What happened until now."""
        now_ns, fabric = self._env.now_ns, self._network.fabric
        return TransferStats(
            num_transfers=self._num_arrived,
            num_bytes=self._num_bytes,
            num_failed=self._num_failed,
            num_retries=self._num_retries,
            queue_ns=self._queue_ns,
            total_ns=self._total_ns,
            sent=_uses(self._outgoing, now_ns),
            received=_uses(self._incoming, now_ns),
            fabric=_use(fabric, now_ns) if fabric.capacity else None,
        )

    def _link(
        self, links: dict[Peer, NetworkLink], server: Peer, *, is_outgoing: bool
    ) -> NetworkLink:
        link = links.get(server)
        if link is None:
            rate = self._link_rate or 1
            if self._num_ranks is not None and not self._is_unlimited:
                rate = max(rate // self._num_ranks(server[0]), 1)
            link = links[server] = self._network.link(rate, is_outgoing=is_outgoing)
        return link

    def _attempt(self, transfer: _Transfer, now_ns: int) -> None:
        """The transfer's turn has come, or it is tried again."""
        transfer.num_attempts += 1
        transfer.flows = False
        transfer.due_ns = now_ns + self._latency_ns
        heappush(self._due, (transfer.due_ns, transfer.number))

    # ---- what happens in simulated time --------------------------------------------------------

    def _wake_at(self, time_ns: int) -> None:
        if time_ns not in self._wakes_ns:
            self._wakes_ns.add(time_ns)
            event = TimedEvent(self._env, time_ns - self._env.now_ns, TRANSFER_END)
            event.callbacks.append(self._wake)

    def _wake(self, _: Event) -> None:
        """Let happen what is due now, and tell who waits for it."""
        now_ns, due = self._env.now_ns, self._due
        self._wakes_ns.discard(now_ns)
        over: list[_Transfer] = []
        while due and due[0][0] <= now_ns:
            while due and due[0][0] <= now_ns:
                time_ns, number = heappop(due)
                transfer = self._under_way.get(number)
                if transfer is not None and self._is_over(transfer, time_ns):
                    over.append(transfer)
            for flow in self._network.share(now_ns):
                heappush(due, (flow.due_ns, flow.number))
        over.sort(key=_BY_NUMBER)
        for transfer in over:
            transfer.ended(transfer.has_arrived)
        while due and not self._is_due(due[0]):
            heappop(due)
        if due:
            self._wake_at(due[0][0])

    def _is_due(self, entry: tuple[int, int]) -> bool:
        """Whether an entry is not out of date."""
        transfer = self._under_way.get(entry[1])
        return transfer is not None and entry[0] in (transfer.due_ns, transfer.deadline_ns)

    def _is_over(self, transfer: _Transfer, time_ns: int) -> bool:
        """Let a transfer go on that had something due at this time; returns whether it ends."""
        if transfer.due_ns != time_ns:
            if transfer.deadline_ns != time_ns:
                return False
            self._end(transfer, time_ns)
            return True
        if not transfer.flows and self._link_rate and transfer.num_bytes:
            transfer.flows = True
            self._network.add(transfer, time_ns)
            return False
        fails = self._draws.next_fails(transfer.rid)
        if fails and transfer.num_attempts < self._max_attempts:
            self._num_retries += 1
            self._take_off(transfer, time_ns)
            self._attempt(transfer, time_ns)
            return False
        transfer.has_arrived = not fails
        self._end(transfer, time_ns)
        return True

    def _end(self, transfer: _Transfer, now_ns: int) -> None:
        """A transfer has arrived, or is given up. The next one of its queue has its turn."""
        self._take_off(transfer, now_ns)
        del self._under_way[transfer.number]
        if transfer.has_arrived:
            self._num_arrived += 1
            self._num_bytes += transfer.num_bytes
            self._total_ns += now_ns - transfer.start_ns
        else:
            self._num_failed += 1
        queue = transfer.queue
        if queue is None or not transfer.num_attempts:
            return
        while queue.waiting:
            following = queue.waiting.popleft()
            if following.number in self._under_way:
                self._queue_ns += now_ns - following.start_ns
                self._attempt(following, now_ns)
                return
        queue.is_busy = False

    def _take_off(self, transfer: _Transfer, now_ns: int) -> None:
        """Remove a transfer from its links, if it is on them."""
        if transfer.flows:
            transfer.flows = False
            self._network.remove(transfer, now_ns)


def _uses(links: Mapping[Peer, NetworkLink], now_ns: int) -> dict[int, LinkUse]:
    """By replica. Ranks of a replica are added up."""
    uses: dict[int, LinkUse] = {}
    for (replica, _), link in sorted(links.items()):
        before, use = uses.get(replica, _UNUSED), _use(link, now_ns)
        uses[replica] = LinkUse(before.num_bytes + use.num_bytes, before.busy_ns + use.busy_ns)
    return uses


def _use(link: NetworkLink, now_ns: int) -> LinkUse:
    return LinkUse(link.num_bytes, link.busy_ns(now_ns))
