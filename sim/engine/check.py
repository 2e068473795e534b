"""Invariants of every family between two steps: each request is in one place and has its slot."""

from collections import Counter

from sim.core.errors import require
from sim.core.request import Status
from sim.engine.core import EngineCore


def check_requests(engine: EngineCore) -> None:
    """Verify that every live request is in exactly one place and has the status of that place.

    Raises:
        InvariantError: an invariant is broken; the message names it.
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
