"""What holds in every family: each request ends, is in one place meanwhile, and keeps nothing.

The account of a run counts requests up to its end. Every driver has one, in simulated time and in
real time (INV-1 and INV-4 of docs/explanation/invariants.md).
"""

from collections import Counter
from collections.abc import Iterable

from sim.core.errors import AccountError, require
from sim.core.request import Status
from sim.engine.core import EngineCore

_MOST_NAMED = 3


class Account:
    """Counts the requests of a run, from their arrival to their end."""

    def __init__(self) -> None:
        self._num_arrived = 0
        # Most requests finish: they are counted apart, since a status is slow to look up.
        self._num_finished = 0
        self._ended: Counter[Status] = Counter()
        self._live: dict[str, None] = {}

    def arrived(self, rid: str) -> None:
        """A request has come to the servers."""
        self._num_arrived += 1
        self._live[rid] = None

    def over(self, rid: str, status: Status) -> None:
        """A request has finished, or was rejected or aborted, as `status` says.

        Raises AccountError: it has not arrived, or has ended before.
        """
        if rid not in self._live:
            raise AccountError(f"{rid} ended without an arrival, or a second time")
        del self._live[rid]
        if status is Status.FINISHED:
            self._num_finished += 1
        else:
            self._ended[status] += 1

    def close(self, engines: Iterable[EngineCore], num_expected: int | None = None) -> None:
        """The run is over.

        `engines` are those of all servers; `num_expected` requests are in the workload, if that is
        known.

        Raises AccountError: requests have not arrived or not ended, or an engine keeps something.
        """
        unsent = 0 if num_expected is None else num_expected - self._num_arrived
        if self._live or unsent:
            ended = ", ".join(
                f"{self._ended[status]:,} {status.value}"
                for status in (Status.REJECTED, Status.ABORTED)
            )
            raise AccountError(
                f"{self._num_arrived:,} requests arrived ({unsent:,} did not):"
                f" {self._num_finished:,} {Status.FINISHED.value}, {ended},"
                f" {len(self._live):,} without an end{_named(self._live)}"
            )
        for number, engine in enumerate(engines):
            check_nothing_kept(engine, f"server {number}")


def check_nothing_kept(engine: EngineCore, name: str) -> None:
    """Verify that an engine whose requests have all ended keeps none of them, and none of their KV.

    Raises AccountError: it does; the message begins with `name`.
    """
    if what := kept_by(engine):
        raise AccountError(f"{name} still {what}")


def kept_by(engine: EngineCore) -> str:
    """What an engine keeps of requests that have all ended; empty: nothing.

    It may keep what it would let go of if it looked: a server of vLLM 0.19 that has nothing else to
    do looks for no ends of transfers. What it keeps for requests to come is let go of.
    """
    engine.scheduler.let_kept_go()
    unseen = engine.role.unseen
    kept = [rid for rid in engine.requests if rid not in unseen]
    if kept or engine.in_flight:
        num_steps = len(engine.in_flight)
        return f"has {len(kept):,} requests{_named(kept)}, {num_steps} steps"
    kv = engine.kv
    num_held = kv.pool_tokens - kv.free_tokens - kv.evictable_tokens
    if num_held and not unseen and not kv.is_copying:
        return f"holds {num_held:,} tokens of KV for requests that ended"
    return ""


def _named(rids: Iterable[str]) -> str:
    names = list(rids)
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f" ({', '.join(names[:_MOST_NAMED])}{more})" if names else ""


def check_requests(engine: EngineCore) -> None:
    """Verify that every live request is in exactly one place and has the status of that place.

    Raises InvariantError: an invariant is broken; the message names it.
    """
    scheduler = engine.scheduler
    waiting = {request.rid for request in scheduler.waiting_requests()}
    arrived = {request.rid for request in engine.input_queue.requests}
    require(not waiting & arrived, f"received too early: {sorted(waiting & arrived)}")
    waiting |= arrived
    running = {r.rid for r in scheduler.running.requests if r.status is Status.RUNNING}
    alive = set(engine.requests)
    elsewhere = alive - waiting - running
    require(not waiting & running, f"both waiting and running: {sorted(waiting & running)}")
    require(waiting | running <= alive, "a request that has ended is still waiting or running")
    allowed = {request.rid for request in scheduler.requests_elsewhere()}
    if engine.num_places > 1:
        _check_micro_batches(engine)
    for launch in engine.in_flight:
        allowed |= {request.rid for request in [*launch.prefill, *launch.leaving]}
    require(elsewhere <= allowed, f"requests in no queue or batch: {sorted(elsewhere - allowed)}")
    for request in scheduler.waiting_requests():
        require(
            request.status is Status.WAITING, f"{request.rid} waits with status {request.status}"
        )
    for rid in running | elsewhere:
        status = engine.requests[rid].status
        require(status is Status.RUNNING, f"{rid} runs with status {status}")
    num_held = len(alive) - len(waiting)
    require(
        scheduler.num_slots_used == num_held,
        f"{scheduler.num_slots_used} slots are in use, but {num_held} requests need a slot",
    )


def _check_micro_batches(engine: EngineCore) -> None:
    """No more steps are in flight than there are micro-batches, and no two make tokens of a row."""
    num_in_flight = len(engine.in_flight)
    require(num_in_flight <= engine.num_places, f"{num_in_flight} steps are in flight")
    samples = Counter(
        request.rid
        for launch in engine.in_flight
        for request in {*launch.decode, *launch.prefill} - {*launch.chunked}
    )
    twice = [rid for rid, count in samples.items() if count > 1]
    require(not twice, f"requests get tokens from two steps in flight: {sorted(twice)}")
