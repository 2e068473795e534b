"""SGLang's scheduler for pipeline parallelism.

Source: SGLang 0.5.23, `event_loop_pp` in managers/scheduler_pp_mixin.py. There are as many
micro-batches as stages, each with a running batch and a last batch of its own. They take turns. A
micro-batch is decided when the result of its last step is known; all others may be in flight then.
docs/explanation/pipeline.md has the rules.
"""

from collections.abc import Iterable

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.running_batch import RunningBatch
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import SchedulePolicy
from sim.sglang.request import SglangDecision, SglangLaunch, SglangRequest
from sim.sglang.scheduler.batching import DecodeTurns
from sim.sglang.scheduler.scheduler import SglangScheduler


class _MicroBatch:
    """What a micro-batch has for itself; the meanings are those of `SglangScheduler`."""

    def __init__(self, config: SchedulerConfig, page_size: int) -> None:
        self.running = RunningBatch[SglangRequest](page_size)
        self.turns = DecodeTurns(self.running, config.decode_max_requests)
        self.last: SglangLaunch | None = None
        self.ended: list[SglangRequest] = []
        self.is_full = False
        self.kept_extend_tokens = 0


class SglangPipelineScheduler(SglangScheduler):
    """A scheduler whose running batch is that of one micro-batch at a time.

    The waiting queue, the pool, the prefix cache, the chunked request and the new-token ratio are
    those of all: the chunks of a prompt go into one micro-batch after another.
    """

    def __init__(
        self, config: SchedulerConfig, *, kv: KVCacheManager, policy: SchedulePolicy
    ) -> None:
        super().__init__(config, kv=kv, policy=policy)
        self.takes_turns = True
        # `pp_max_micro_batch_size`
        self._max_rows = max(config.max_running_requests // config.micro_batches, 1)
        self._micro_batches = [
            _MicroBatch(config, kv.page_size) for _ in range(config.micro_batches)
        ]
        self._number = 0
        self._load()

    def use_micro_batch(self, number: int) -> None:
        if number != self._number:
            self._store()
            self._number = number
            self._load()

    def _store(self) -> None:
        kept = self._micro_batches[self._number]
        kept.last, kept.ended = self._last, self._ended
        kept.is_full, kept.kept_extend_tokens = self.is_full, self.kept_extend_tokens

    def _load(self) -> None:
        kept = self._micro_batches[self._number]
        self.running, self.turns = kept.running, kept.turns
        self._last, self._ended = kept.last, kept.ended
        self.is_full, self.kept_extend_tokens = kept.is_full, kept.kept_extend_tokens

    def decide(self, now_ns: int, in_flight: SglangLaunch | None) -> SglangDecision:
        """No row of this micro-batch is in flight: all their tokens are known."""
        return super().decide(now_ns, None)

    def _num_free_slots(self, num_held: int) -> int:
        """Each micro-batch may have its share of `max_running_requests`."""
        return min(self._max_rows - self._num_rows, super()._num_free_slots(num_held))

    def idle(self, now_ns: int, decision: SglangDecision) -> int | None:
        """A micro-batch without work is no reason to wait if another has some."""
        return None if self._others_run else super().idle(now_ns, decision)

    @property
    def _others_run(self) -> bool:
        return any(True for _ in self._elsewhere())

    def _in_batches(self) -> Iterable[SglangRequest]:
        return [*super()._in_batches(), *self._elsewhere()]

    def requests_elsewhere(self) -> Iterable[SglangRequest]:
        return [*super().requests_elsewhere(), *self._elsewhere()]

    def _elsewhere(self) -> Iterable[SglangRequest]:
        """The live requests of the micro-batches that are not in use."""
        for other in self._others():
            prefilled = [] if other.last is None else other.last.prefill
            for request in (*other.running.requests, *other.turns.resting, *prefilled):
                if request.status is Status.RUNNING:
                    yield request

    def _others(self) -> list[_MicroBatch]:
        return [each for number, each in enumerate(self._micro_batches) if number != self._number]

    def num_running_shown(self, *, is_mixed: bool) -> int:
        shown = super().num_running_shown(is_mixed=is_mixed)
        for other in self._others():
            if other.last is None or other.last.mode is not ForwardMode.MIXED:
                shown += len(other.running) + len(other.turns.resting)
        return shown
