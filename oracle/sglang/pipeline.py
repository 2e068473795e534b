"""SGLang's loop for pipelines (`event_loop_pp` of managers/scheduler_pp_mixin.py), in virtual time.

Micro-batches take turns, each with a running batch and a last batch of its own. After each decision
the result of the next one is processed. Each stage has an equal part of a step's time.
"""

from typing import Any

from sglang.srt.managers.schedule_batch import ScheduleBatch

from oracle.sglang.driver import Driver

_NS_PER_S = 1_000_000_000


def run_stages(driver: Driver, num_stages: int) -> None:
    """Let the micro-batches take turns until all requests have ended."""
    Stages(driver, num_stages).run()


class Stages:
    """The state of the loop."""

    def __init__(self, driver: Driver, num_stages: int) -> None:
        self.driver, self.s = driver, driver.s
        self.now_s = 0.0
        self.free_ns = [0] * num_stages
        self.running = [ScheduleBatch(reqs=[], batch_is_full=False) for _ in range(num_stages)]
        self.last: list[Any] = [None] * num_stages
        self.launched: list[Any] = [None] * num_stages
        self.s._collect_inflight_batches = lambda: [*self.running, *self.launched]
        # Batch, result and end of each micro-batch in flight.
        self.flying: dict[int, tuple[Any, Any, float]] = {}

    def run(self) -> None:
        number = num_idle = 0
        while len(self.driver.rows) < self.driver.cfg["max_steps"]:
            self.s.running_batch = self.running[number]
            self.s.last_batch = self.last[number]
            self.driver.ingest(self.now_s)
            batch, queue_before = self.driver.decide()
            self.running[number] = self.s.running_batch
            self.launched[number] = batch
            if batch:
                self._launch(number, batch, queue_before)
                num_idle = 0
            elif not self.flying:
                num_idle += 1
                if num_idle >= len(self.running) and not self._wait(num_idle):
                    break
            number = (number + 1) % len(self.running)
            self._take_in(number)

    def _launch(self, number: int, batch: Any, queue_before: int) -> None:
        result, row = self.driver.launch(batch, queue_before, self.now_s)
        step_ns = round((row["t_end"] - row["t_start"]) * _NS_PER_S)
        free_ns, done_ns = self.free_ns, 0
        at_ns = max(round(self.now_s * _NS_PER_S), free_ns[0])
        row["t_start"] = at_ns / _NS_PER_S
        for stage in range(len(free_ns)):
            part_ns = step_ns * (stage + 1) // len(free_ns) - done_ns
            done_ns += part_ns
            at_ns = free_ns[stage] = max(at_ns, free_ns[stage]) + part_ns
        row["t_end"] = at_ns / _NS_PER_S
        row["running"] = sum(len(running.reqs) for running in self.running)
        self.flying[number] = (batch, result, row["t_end"])

    def _wait(self, num_idle: int) -> bool:
        """Move the clock to the next arrival if nothing can run; False ends the run."""
        if not self.driver.live:
            self.driver.idle()
        deferred = self.s.prefill_decode_interval
        waits = self.s.waiting_queue or self.s.chunked_req is not None
        if waits and num_idle < 3 * len(self.running) + deferred:
            return True
        event_s = self.driver.next_event_s(self.now_s)
        if event_s is not None:
            self.now_s = event_s
            return True
        return bool(self.driver.live) and num_idle <= 4 * len(self.running)

    def _take_in(self, number: int) -> None:
        if number in self.flying:
            batch, result, end_s = self.flying.pop(number)
            self.now_s = max(self.now_s, end_s)
            self.driver.absorb(batch, result, end_s)
            self.last[number] = batch
