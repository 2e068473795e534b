"""Drives SGLang's scheduler as its loop for pipelines does; needs SGLang's environment.

Like `event_loop_pp` of managers/scheduler_pp_mixin.py: micro-batches take turns, each with a
running batch and a last batch of its own. After each decision the result of the next one is
processed. Each stage has an equal part of a step's time.
"""

from typing import Any

_NS_PER_S = 1_000_000_000


def pipeline_oracle(driver: type) -> type:
    """The driver of `live`, for cases with `stages` above 1."""
    return type("PipelineOracle", (PipelineLoop, driver), {})


class PipelineLoop:
    """The loop, for the harness's driver."""

    def run(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        self._prepare(self.cfg["stages"])
        number = num_idle = 0
        while self.step < self.cfg["max_steps"]:
            self.s.running_batch = self.running[number]
            self.s.last_batch = self.last[number]
            self.ingest(self.now_s)
            batch, queue_before = self.begin_schedule()
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
        for rid in self.live:
            self.info[rid]["status"] = "stuck"
        return self.rows, list(self.info.values())

    def _prepare(self, num_stages: int) -> None:
        from sglang.srt.managers.schedule_batch import ScheduleBatch
        from sglang.srt.runtime_context import get_context

        most = max(self.cfg["max_running_requests"] // num_stages, 1)
        get_context().override("stages", pp_max_micro_batch_size=most)
        self.now_s = 0.0
        self.stage_free_ns = [0] * num_stages
        self.running = [ScheduleBatch(reqs=[], batch_is_full=False) for _ in range(num_stages)]
        self.last: list[Any] = [None] * num_stages
        self.launched: list[Any] = [None] * num_stages
        self.s._collect_inflight_batches = lambda: [*self.running, *self.launched]
        # Batch, result and end of each micro-batch in flight.
        self.flying: dict[int, tuple[Any, Any, float]] = {}

    def _launch(self, number: int, batch: Any, queue_before: int) -> None:
        result = self.launch(batch)
        row, end_s = self.describe(batch, self.now_s, queue_before)
        step_ns = round((end_s - self.now_s) * _NS_PER_S)
        free_ns, done_ns = self.stage_free_ns, 0
        at_ns = max(round(self.now_s * _NS_PER_S), free_ns[0])
        row["t_start"] = at_ns / _NS_PER_S
        for stage in range(len(free_ns)):
            part_ns = step_ns * (stage + 1) // len(free_ns) - done_ns
            done_ns += part_ns
            at_ns = free_ns[stage] = max(at_ns, free_ns[stage]) + part_ns
        row["t_end"] = at_ns / _NS_PER_S
        row["running"] = sum(len(running.reqs) for running in self.running)
        self.rows.append(row)
        self.step += 1
        self.flying[number] = (batch, result, row["t_end"])

    def _wait(self, num_idle: int) -> bool:
        """Move the clock to the next arrival if nothing can run; False ends the run."""
        if not self.live:
            self.idle()
        deferred = self.s.prefill_decode_interval
        waits = self.s.waiting_queue or self.s.chunked_req is not None
        if waits and num_idle < 3 * len(self.running) + deferred:
            return True
        if self.pending:
            self.now_s = max(self.now_s, self.pending[0][1]["arrival"])
            return True
        return bool(self.live) and num_idle <= 4 * len(self.running)

    def _take_in(self, number: int) -> None:
        if number in self.flying:
            batch, result, end_s = self.flying.pop(number)
            self.now_s = max(self.now_s, end_s)
            self.absorb(batch, result, end_s)
            self.last[number] = batch
