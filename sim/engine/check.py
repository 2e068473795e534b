"""The invariants of requests and slots, which hold between any two steps of any family."""

from sim.core.errors import require
from sim.core.request import Status
from sim.engine.core import EngineCore


def check_requests(engine: EngineCore) -> None:
    """Every request that is not over is in exactly one place, and its status says which.

    Raises:
        InvariantError: naming what does not hold (docs/explanation/invariants.md).
    """
    scheduler = engine.scheduler
    waiting = {request.rid for request in scheduler.waiting_requests()}
    running = {r.rid for r in scheduler.running.requests if r.status is Status.RUNNING}
    alive = set(engine.requests)
    elsewhere = alive - waiting - running
    require(not waiting & running, f"waiting and running: {sorted(waiting & running)}")
    require(waiting | running <= alive, "a request that is over is still queued or running")
    allowed = {request.rid for request in scheduler.requests_elsewhere()}
    for launch in engine.in_flight:
        allowed |= {request.rid for request in [*launch.prefill, *launch.leaving]}
    require(elsewhere <= allowed, f"nowhere: {sorted(elsewhere - allowed)}")
    for request in scheduler.waiting_requests():
        require(request.status is Status.WAITING, f"{request.rid} waits as {request.status}")
    for rid in running | elsewhere:
        status = engine.requests[rid].status
        require(status is Status.RUNNING, f"{rid} runs as {status}")
    num_held = len(alive) - len(waiting)
    require(
        scheduler.num_slots_used == num_held,
        f"{scheduler.num_slots_used} slots taken by {num_held} requests",
    )
