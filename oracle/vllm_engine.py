"""The loop of vLLM's engine, its own code, without the rest of an engine."""

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vllm.v1.engine.core import EngineCore


class Engine(EngineCore):
    """An engine core with a scheduler and an executor, and nothing else.

    `step` and `step_with_batch_queue` are vLLM's. Attributes of parts that are left out say so, in
    the words of any version.
    """

    is_pooling_model = is_mm_encoder_only = False
    is_ec_consumer = True

    def __init__(self, scheduler: Any, executor: Any, config: dict[str, Any]) -> None:
        self.scheduler = scheduler
        self.model_executor = executor
        self.async_scheduling = config["async_scheduling"]
        self.use_spec_decode = self.check_for_draft_tokens = "speculation" in config
        self.batch_queue_size = config.get("stages", 1) + config["async_scheduling"]
        self.batch_queue = deque(maxlen=self.batch_queue_size)

    def next_outputs(self) -> dict[int, Any]:
        """One round of the loop: decide, if a step may be launched, and else take in a result."""
        step = self.step if self.batch_queue_size == 1 else self.step_with_batch_queue
        outputs, model_executed = step()
        self.post_step(model_executed)
        return outputs or {}

    def capture_iteration_details(self, *_arguments: object) -> AbstractContextManager[None]:
        return nullcontext()

    log_error_detail = log_iteration_details = capture_iteration_details

    def _leave_out(self, *_arguments: object) -> None:
        pass

    _process_aborts_queue = _attach_iteration_details = _attach_weight_version = _leave_out
