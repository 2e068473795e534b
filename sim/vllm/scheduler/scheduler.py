"""Decides the next batch as vLLM v1 does: running requests first, then waiting ones in order.

A step has one token budget and no phases: prompt chunks and decode tokens come out of the same
budget. Rules by number: docs/explanation/vllm.md (vLLM 0.33.0, v1/core/sched/scheduler.py and
async_scheduler.py).

`VllmScheduler` is what two schedulers share. They follow the same rules:

* `LockstepScheduler` decides for servers on which each decode row gets one token in each step. It
  decides for all decode rows at once, and many equal steps are taken at once (fast-forward).
* `RowScheduler` decides row by row, in each step. It is for servers on which rows may get different
  numbers of tokens, or free blocks at different times: with draft tokens, with groups of layers,
  in pipelines (`sim.engine.server_config.goes_row_by_row`).

`RowScheduler` could decide for any server, and decides the same, but takes several times as long.
"""

from collections.abc import Iterable

from sim.core.batch import ForwardMode
from sim.core.errors import InvariantError
from sim.core.request import Status
from sim.core.tokens import TokenSequence
from sim.engine.front_end_limits import FrontEndLimits
from sim.engine.page_pool import Span
from sim.engine.scheduler import BaseScheduler, Decision, Launch
from sim.vllm.cache.memory import BlockMemory
from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.config import VllmConfig
from sim.vllm.request import V
from sim.vllm.scheduler.admission import Admission
from sim.vllm.scheduler.aligned_chunks import aligned_chunks_of
from sim.vllm.scheduler.running_pass import RunningPass
from sim.vllm.scheduler.step_limits import PrefillCadence, PromptLimits, largest_chunk
from sim.vllm.scheduler.waiting_queue import WaitingQueue, build_waiting


class VllmScheduler(BaseScheduler[V]):
    """Base class: the scheduler of a vLLM v1 server.

    Attributes:
        waiting: requests without blocks.
        admitted: requests with blocks, in order of admission (vLLM's list `running`).
    """

    family = "vllm"

    def __init__(self, config: VllmConfig, *, memory: BlockMemory) -> None:
        super().__init__(memory)
        self.aborts_before_results = True
        queued = config.max_num_queued_reqs, config.max_num_queued_tokens
        if queued != (None, None):
            self.front_end_limits = FrontEndLimits(*queued)
        self.waiting: WaitingQueue[V] = build_waiting(config.scheduling_policy)
        self.admitted: list[V] = []
        self._config = config
        self._blocks = memory
        self._aligned = aligned_chunks_of(config)
        self._cadence = PrefillCadence(config.prefill_schedule_interval)
        self._decision: Decision[V] = Decision()
        self._num_entries = 0

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        """`max_new_tokens` as far as `max_model_len` allows; 0 or less: rejected (rule 1)."""
        return min(max_new_tokens, self._config.max_model_len - prompt_len)

    def enter(self, request: V) -> None:
        self._num_entries += 1
        request.entry = self._num_entries
        self.waiting.add(request)

    def withdraw(self, request: V) -> None:
        self.waiting.remove(request)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def waiting_requests(self) -> Iterable[V]:
        return self.waiting.all()

    def requests_elsewhere(self) -> Iterable[V]:
        """Admitted requests that are not among `running`, or have their last token in flight."""
        return self.admitted

    def in_order_of_end(self, finishing: list[V]) -> list[V]:
        """Requests free their blocks in order of admission (rule 8)."""
        return sorted(finishing, key=lambda request: request.admission)

    # ---- the step ------------------------------------------------------------------------------

    def _decide(self, admission: Admission[V]) -> None:
        """First the running requests, then the waiting ones with what is left (rule 2)."""
        decision = self._decision
        limits = PromptLimits(
            largest_chunk(self._config, len(self.admitted) + self.num_waiting),
            self._cadence.interval > 1 and self._cadence.defers(self._decodes),
            self._aligned,
        )
        steps = self._visit_running(limits)
        admitted: list[V] = []
        if not decision.preempted:
            admitted = admission.run(self.admitted, steps, limits)
            self.num_slots_used += len(admitted)
            if not limits.are_deferred:
                self._cadence.admitted(self._num_left_waiting)
        decision.launch = self._launch([*steps.chunks, *admitted])
        self._cadence.decided(
            prefills=steps.has_prefilled or any(r.fill_len - r.prefix_len > 1 for r in admitted),
            num_steps=int(decision.launch is not None),
        )

    def _visit_running(self, limits: PromptLimits) -> RunningPass[V]:
        """The first half of the step: give running requests their tokens."""
        raise NotImplementedError

    def _launch(self, prefill: list[V]) -> Launch[V] | None:
        """What the step computes; None: nothing."""
        raise NotImplementedError

    def _put_back(self, by: V, victim: V) -> None:
        """Put a request whose blocks were freed for `by` back into the waiting queue."""
        victim.status = Status.WAITING
        victim.lose_prefix()
        victim.preemptions += 1
        self.waiting.put_back(victim)
        self._decision.preempted.append((by, [victim]))

    @property
    def _num_left_waiting(self) -> int:
        """Requests that a step could have admitted, but left waiting."""
        return len(self.waiting)

    @property
    def _decodes(self) -> bool:
        """A running request has computed, or is about to compute, its whole prompt."""
        return any(not request.is_prefilling for request in self.admitted)

    def idle(self, now_ns: int, decision: Decision[V]) -> int | None:
        if decision.preempted or not (self.admitted or self.num_waiting):
            return None
        raise InvariantError(
            f"{self.num_waiting} requests wait and {len(self.admitted)} run, but none gets a token"
        )

    # ---- state, for the engine and logs --------------------------------------------------------

    @property
    def num_running(self) -> int:
        return len(self.admitted)

    @property
    def batch_is_full(self) -> bool:
        return len(self.admitted) >= self._config.max_active

    def token_ids(self, request: V, num_tokens: int) -> TokenSequence:
        return request.kv.token_ids(num_tokens)

    def blocks_of_ended(self) -> list[tuple[RequestBlocks, int]]:
        """Blocks of requests that have ended, which are not freed yet, and the tokens in them."""
        return []

    def spans(self, request: V, num_tokens: int) -> list[Span]:
        return self._blocks.spans(request.kv, num_tokens)


def mode_of(prefill: list[V], rows: list[V]) -> ForwardMode:
    """The kind of a step with these prefill and decode rows."""
    if not prefill:
        return ForwardMode.DECODE
    return ForwardMode.MIXED if rows else ForwardMode.EXTEND
