"""SGLang's own loops for pipelines, in virtual time, as the first stage runs them.

`event_loop_pp`, `event_loop_pp_disagg_prefill` and `event_loop_pp_disagg_decode` of
managers/scheduler_pp_mixin.py. What a stage sends to the others and receives is replaced: a step
takes its time, of which each stage has an equal part; a result is known when the last stage has
computed it; and what the first stage has seen of its transfers comes back to it one round later, as
if all stages had seen the same.
"""

from collections import deque
from types import SimpleNamespace
from typing import Any

from oracle.sglang.driver import Driver

_NS_PER_S = 1_000_000_000
# What a pass asks for, in this order, and what it receives one round later.
_SEEN = (
    "_pp_pd_get_retract_ids", "_pp_pd_get_prealloc_ids", "_pp_pd_get_decode_transferred_ids",
    "_pp_pd_get_prefill_transferred_ids",
)  # fmt: skip
_DECISIONS = {
    "null": "get_next_batch_to_run",
    "prefill": "get_new_batch_prefill",
    "decode": "get_next_disagg_decode_batch_to_run",
}
_LOOPS = {
    "null": "event_loop_pp",
    "prefill": "event_loop_pp_disagg_prefill",
    "decode": "event_loop_pp_disagg_decode",
}


class _OverError(Exception):
    """Nothing more will happen."""


def run_stages(driver: Driver, num_stages: int) -> None:
    """Let the micro-batches take turns until all requests have ended."""
    Stages(driver, num_stages).run()


class Stages:
    """The stages after the first one, and the time."""

    def __init__(self, driver: Driver, num_stages: int) -> None:
        self.driver, self.s = driver, driver.s
        self.now_s = 0.0
        self.free_ns = [0] * num_stages
        # Batch, result and end of each micro-batch in flight.
        self.flying: dict[int, tuple[Any, Any, float]] = {}
        self.mode = driver.cfg["disaggregation_mode"]
        self._num_idle = 0
        self._is_first_pass, self._has_launched = True, False
        self._replace()

    def _replace(self) -> None:
        """Put the rest of the pipeline behind the loop's methods."""
        server = self.s
        server.pp_group = SimpleNamespace(
            is_first_rank=True, is_last_rank=False, send_object=lambda *_, **__: []
        )
        server.ingest_requests = self._begin_pass
        server.on_idle = self.driver.idle
        server.enable_staging = False
        server._pp_launch_batch = self._launch
        server._pp_commit_send_output_work_and_preprocess_output_tensors = self._result
        server._pp_process_batch_result = lambda batch, result: self.driver.absorb(
            batch, result, self.now_s
        )
        for name in ("_pp_send_pyobj_to_next_stage", "_pp_recv_proxy_tensors"):
            setattr(server, name, lambda *_, **__: [])
        server._pp_send_proxy_to_next_stage = lambda _: None
        name = _DECISIONS[self.mode]
        decide = getattr(server, name)
        setattr(server, name, lambda *given, **named: self.driver.watch(decide, *given, **named))
        under_way: deque[Any] = deque()
        server._pp_recv_pyobj_from_prev_stage = under_way.popleft
        for name in _SEEN:
            setattr(server, name, self._sent_round(getattr(server, name), under_way))

    def _sent_round(self, look: Any, under_way: deque[Any]) -> Any:
        def seen(*given: Any) -> Any:
            under_way.append(look(*given))
            return under_way[-1]

        return seen

    def run(self) -> None:
        try:
            getattr(self.s, _LOOPS[self.mode])()
        except _OverError:
            return

    # ---- a pass --------------------------------------------------------------------------------

    def _begin_pass(self) -> list[Any]:
        if len(self.driver.rows) >= self.driver.cfg["max_steps"]:
            raise _OverError
        if self._has_launched or self.flying:
            self._num_idle = 0
        elif not self._is_first_pass:
            self._num_idle += 1
            if self._num_idle > len(self.free_ns):
                self._wait()
        self._is_first_pass = self._has_launched = False
        self.driver.ingest(self.now_s)
        return []

    def _launch(self, number: int, batch: Any, *_: Any) -> tuple[Any, None]:
        self.now_s = self.driver.thread_s(self.now_s)
        self.driver.set_time(self.now_s)
        self.driver.role.forward_ends(self.free_ns[-1] / _NS_PER_S, batch)
        result, row = self.driver.launch(batch, self.driver.queue_before, self.now_s)
        step_ns = round((row["t_end"] - row["t_start"]) * _NS_PER_S)
        free_ns, done_ns = self.free_ns, 0
        at_ns = max(round(self.now_s * _NS_PER_S), free_ns[0])
        row["t_start"] = at_ns / _NS_PER_S
        for stage in range(len(free_ns)):
            part_ns = step_ns * (stage + 1) // len(free_ns) - done_ns
            done_ns += part_ns
            at_ns = free_ns[stage] = max(at_ns, free_ns[stage]) + part_ns
        row["t_end"] = at_ns / _NS_PER_S
        row["running"] = sum(len(running.reqs) for running in self.s.running_mbs)
        self.driver.role.forward_ends(row["t_end"], batch)
        if self.driver.host:
            # Copies of this stage wait for its own part of the steps.
            self.driver.host.device.forward.free_s = free_ns[0] / _NS_PER_S
        self.flying[number] = (batch, result, row["t_end"])
        self._has_launched = True
        return result, None

    def _result(self, _: int, number: int) -> tuple[None, Any, Any]:
        """The result of the micro-batch whose turn comes next, and an event: its end."""
        if number not in self.flying:
            return None, None, None
        _, result, end_s = self.flying.pop(number)

        def wait_for_end() -> None:
            self.now_s = max(self.now_s, end_s)

        return None, result, SimpleNamespace(synchronize=wait_for_end)

    # ---- idle ----------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Move the clock to the next event if the passes of an idle server change nothing."""
        if self._passes_again():
            return
        if not self.driver.live:
            self.driver.idle()
        event_s = self.driver.next_event_s(self.now_s)
        if event_s is not None:
            self.now_s = event_s
        elif not self.driver.live or self._num_idle > 4 * len(self.free_ns):
            raise _OverError

    def _passes_again(self) -> bool:
        if self.mode != "null":
            return not self.driver.role.is_settled()
        return self.driver.decides_again()
