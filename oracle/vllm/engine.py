"""The loop of vLLM's engine, its own code, without the rest of an engine."""

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from queue import Queue
from types import SimpleNamespace
from typing import Any

from vllm.v1.engine.core import EngineCore

QUEUE_LIMITS = "max_num_queued_reqs", "max_num_queued_tokens"


def refuses(config: dict[str, Any], num_requests: int, num_queued_tokens: int) -> bool:
    """What `check_admission` of vLLM's front end says to one more request."""
    from vllm.exceptions import MaxQueuedTokensError, QueueOverflowError
    from vllm.v1.engine.async_llm import AsyncLLM

    front_end = SimpleNamespace(
        scheduler_config=SimpleNamespace(**{name: config.get(name) for name in QUEUE_LIMITS}),
        admission_stats=None,
        get_num_unfinished_requests=lambda: num_requests,
        get_num_queued_tokens=lambda: num_queued_tokens,
        _record_admission_rejection=lambda _reason: None,
    )
    try:
        AsyncLLM.check_admission(front_end)
    except (MaxQueuedTokensError, QueueOverflowError):
        return True
    return False


class Engine(EngineCore):
    """An engine core with a scheduler and an executor, and nothing else.

    `step`, `step_with_batch_queue` and what they do with aborts are vLLM's. Attributes of parts
    that are left out say so, in the words of any version.
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
        self.aborts_queue = Queue()

    def next_outputs(self) -> dict[int, Any]:
        """One round of the loop: decide, if a step may be launched, and else take in a result."""
        step = self.step if self.batch_queue_size == 1 else self.step_with_batch_queue
        outputs, model_executed = step()
        self.post_step(model_executed)
        return outputs or {}

    @property
    def has_reports(self) -> bool:
        """Workers have seen ends of transfers, in batches whose turn has not come."""
        return any(flight.report is not None for flight, *_ in self.batch_queue)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Abort in the order of the calls; vLLM frees several at once in the order of a set."""
        for rid in request_ids:
            super().abort_requests([rid])

    def capture_iteration_details(self, *_arguments: object) -> AbstractContextManager[None]:
        return nullcontext()

    log_error_detail = log_iteration_details = capture_iteration_details

    def _leave_out(self, *_arguments: object) -> None:
        pass

    _attach_iteration_details = _attach_weight_version = _leave_out
