"""The replicas of a fleet: which of them take requests now, which are starting, which leave."""

from collections.abc import Callable, Sequence
from enum import Enum

from sim.core.errors import InvariantError
from sim.core.units import MAX_TIME_NS
from sim.des.clock import Clock
from sim.des.routers.router import Target
from sim.engine.account import kept_by
from sim.runlog.servers import FleetEvent, ReplicaState


class _Phase(Enum):
    FREE = "free"
    STARTING = "starting"
    UP = "up"
    DRAINING = "draining"


class Seat:
    """GPUs for one replica.

    Attributes:
        number: under which logs have its replicas.
        phase: what its replica does; free: there is none.
        up_ns: when its replica takes requests, or took the first.
        made: its last replica; None: it has had none.
    """

    def __init__(self, index: int, number: int) -> None:
        self.index = index
        self.number = number
        self.phase = _Phase.FREE
        self.up_ns = 0
        self.made: Target | None = None

    @property
    def now(self) -> Target:
        """The replica that is up or draining."""
        if self.made is None:
            raise InvariantError("a replica that is not up was asked for")
        return self.made

    @property
    def is_empty(self) -> bool:
        """Whether an earlier replica has no step in flight any more, and no KV on its way."""
        return self.made is None or not any(map(kept_by, self.made.replica.engines))


class Fleet:
    """Replicas that are started and stopped.

    A stopped replica takes no more requests, and leaves when its last one has ended. Until then it
    keeps its seat, so that a new replica may have to wait for one. A replica begins with an empty
    cache.

    Attributes:
        events: what happened to the replicas, in order.
        on_change: called when other replicas than before take requests.
        wanted: how many replicas shall be up or starting.
    """

    def __init__(
        self,
        env: Clock,
        make: Callable[[int], Target],
        numbers: Sequence[int],
        *,
        startup_ns: int,
    ) -> None:
        """Make a fleet that is empty; `begin` and `scale_to` fill it.

        `make` makes the replica of a seat; `numbers` are those of the seats' replicas in the log. A
        replica takes requests after `startup_ns`.
        """
        self._env = env
        self._make = make
        self._seats = [Seat(index, number) for index, number in enumerate(numbers)]
        self._startup_ns = startup_ns
        self._up: list[Seat] = []
        self._draining: list[Seat] = []
        self.on_change: Callable[[], None] | None = None
        self.events: list[FleetEvent] = []
        self.wanted = 0

    def ended(self) -> None:
        """A request has ended: perhaps the last one of a replica that drains."""
        for seat in list(self._draining):
            if not seat.now.entry.num_unfinished:
                self._leave(seat)

    @property
    def up(self) -> Sequence[Seat]:
        """The seats whose replicas take requests, by number."""
        return self._up

    @property
    def draining(self) -> Sequence[Seat]:
        """The seats whose replicas take no more requests, and have some left."""
        return self._draining

    @property
    def next_up_ns(self) -> int:
        """When the next replica takes requests; MAX_TIME_NS: none is starting."""
        starting = (p.up_ns for p in self._seats if p.phase is _Phase.STARTING)
        return min(starting, default=MAX_TIME_NS)

    def begin(self, num_replicas: int) -> None:
        """At time 0 this many replicas are up already."""
        self.wanted = num_replicas
        for seat in self._seats[:num_replicas]:
            self._come_up(seat)

    def scale_to(self, num_replicas: int) -> None:
        """From now on there shall be this many replicas, up or starting."""
        self.wanted = num_replicas
        present = [p for p in self._seats if p.phase in {_Phase.STARTING, _Phase.UP}]
        # Those first that are starting; then those that came last, whose caches hold least.
        present.sort(key=lambda seat: (seat.phase is _Phase.UP, -seat.up_ns, -seat.number))
        for seat in present[: max(len(present) - num_replicas, 0)]:
            self._stop(seat)
        self.start_missing()

    def start_missing(self) -> None:
        """Start the replicas that are wanted, as far as there are seats."""
        present = sum(p.phase in {_Phase.STARTING, _Phase.UP} for p in self._seats)
        free = [p for p in self._seats if p.phase is _Phase.FREE and p.is_empty]
        for seat in free[: max(self.wanted - present, 0)]:
            seat.up_ns = self._env.now_ns + self._startup_ns
            self._enter(seat, _Phase.STARTING, ReplicaState.STARTING)
        self.come_up()

    def come_up(self) -> None:
        """Let the replicas take requests whose start has ended."""
        for seat in self._seats:
            if seat.phase is _Phase.STARTING and seat.up_ns <= self._env.now_ns:
                self._come_up(seat)

    def _come_up(self, seat: Seat) -> None:
        seat.made = self._make(seat.index)
        self._enter(seat, _Phase.UP, ReplicaState.UP)
        self._offer()

    def _stop(self, seat: Seat) -> None:
        if seat.phase is _Phase.STARTING:
            self._enter(seat, _Phase.FREE, ReplicaState.STOPPED)
            return
        seat.now.replica.next_sample_ns = MAX_TIME_NS
        self._enter(seat, _Phase.DRAINING, ReplicaState.DRAINING)
        self._draining.append(seat)
        self._offer()
        if not seat.now.entry.num_unfinished:
            self._leave(seat)

    def _leave(self, seat: Seat) -> None:
        self._draining.remove(seat)
        self._enter(seat, _Phase.FREE, ReplicaState.STOPPED)

    def _enter(self, seat: Seat, phase: _Phase, state: ReplicaState) -> None:
        seat.phase = phase
        self.events.append(FleetEvent(self._env.now_ns, seat.number, state))

    def _offer(self) -> None:
        self._up = [seat for seat in self._seats if seat.phase is _Phase.UP]
        if self.on_change is not None:
            self.on_change()
