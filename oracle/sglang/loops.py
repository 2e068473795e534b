"""SGLang's loops of a server with one stage, in virtual time.

The order within them is that of `event_loop_normal` and `event_loop_overlap` in
managers/scheduler.py, and of those for prefill and decode servers in disaggregation/prefill.py and
disaggregation/decode.py.
"""

from collections import deque

from oracle.sglang.driver import Driver

# Passes without a batch and without anything to come, after which what waits never runs.
_MOST_IDLE_PASSES = 3


def run_normal(driver: Driver) -> None:
    """Each step's result is known before the next decision."""
    server, now_s, num_idle = driver.s, 0.0, 0
    while len(driver.rows) < driver.cfg["max_steps"]:
        driver.ingest(now_s)
        batch, queue_before = driver.decide()
        if batch:
            now_s = driver.thread_s(now_s)
            driver.set_time(now_s)
            result, row = driver.launch(batch, queue_before, now_s)
            now_s = row["t_end"]
            driver.absorb(batch, result, now_s)
            num_idle = 0
        else:
            driver.idle()
        driver.role.end_pass()
        server.last_batch = batch
        if not batch:
            num_idle += 1
            following_s = wait(driver, now_s, num_idle)
            if following_s is None:
                break
            now_s = following_s


def run_overlap(driver: Driver) -> None:
    """A step is decided while the one before runs; its thread waits for the end of that one."""
    server, now_s, free_s, num_idle = driver.s, 0.0, 0.0, 0
    server.enable_skip_finishing_decode = not driver.role.name
    ends: deque[float] = deque()
    while len(driver.rows) < driver.cfg["max_steps"]:
        driver.ingest(now_s)
        batch, queue_before = driver.decide()
        if batch:
            decided_s, now_s = now_s, driver.thread_s(now_s)
            driver.set_time(now_s)
            driver.role.forward_ends(free_s)
            result, row = driver.launch(batch, queue_before, max(now_s, free_s))
            row["t_sched"] = round(decided_s, 9)
            free_s = row["t_end"]
            server.result_queue.append((batch.copy(), result))
            ends.append(free_s)
            num_idle = 0
        is_idle = not batch and not server.last_batch
        if server.last_batch:
            now_s = max(now_s, ends.popleft())
            driver.absorb(*server.result_queue.popleft(), now_s)
        elif is_idle:
            driver.idle()
        driver.role.end_pass()
        server.last_batch = batch
        if is_idle:
            num_idle += 1
            following_s = wait(driver, now_s, num_idle)
            if following_s is None:
                break
            now_s = following_s


def wait(driver: Driver, now_s: float, num_idle: int) -> float | None:
    """When an idle server makes its next pass; None: nothing more will happen."""
    if driver.decides_again() or not driver.role.is_settled():
        return driver.waits_until(now_s)
    event_s = driver.next_event_s(now_s)
    if event_s is None and driver.live and num_idle <= _MOST_IDLE_PASSES:
        event_s = now_s
    return driver.waits_until(event_s)
