"""The running batch and the last batch of a server, or of one micro-batch of a pipeline.

Source: SGLang 0.5.23, `get_next_batch_to_run` in managers/scheduler.py and `event_loop_pp` in
managers/scheduler_pp_mixin.py. A pipeline has as many micro-batches as stages. They take turns: a
micro-batch is decided when the result of its last step is known; all others may be in flight then.
The waiting queue, the pool, the prefix cache, the chunked request and the new-token ratio are those
of all: the chunks of a prompt go into one micro-batch after another.
docs/explanation/pipeline.md has the rules.
"""

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.sglang.request import SglangBatch, SglangLaunch, SglangRequest
from sim.sglang.scheduler.prefill.batching import DecodeTurns


class MicroBatch:
    """Requests that decode together.

    Attributes:
        running: the rows that decode.
        turns: which of them decode in a step.
        last: the last launch; rows that it prefilled decode from the next decision on.
        ended: rows that have finished and still count, until the next decode step.
        is_full: SGLang's `batch_is_full` flag (rule 7).
        kept_extend_tokens: prefill tokens of the batch from which the running batch grew. SGLang's
            batch object keeps this number and adds it to the processed tokens at every decode step;
            policy hrrn uses that counter, so it is done here too.
    """

    def __init__(self, running: SglangBatch, max_decode_rows: int | None) -> None:
        self.running = running
        self.turns = DecodeTurns(running, max_decode_rows)
        self.last: SglangLaunch | None = None
        self.ended: list[SglangRequest] = []
        self.is_full = False
        self.kept_extend_tokens = 0

    @property
    def num_rows(self) -> int:
        """Rows of SGLang's running batch, with those that have finished."""
        return len(self.running.requests) + len(self.ended)

    @property
    def num_running(self) -> int:
        """Running requests, with those that rest."""
        return len(self.running.requests) + len(self.turns.resting)

    @property
    def prefilled(self) -> list[SglangRequest]:
        """The requests that the last launch prefilled."""
        return [] if self.last is None else self.last.prefill

    @property
    def live_requests(self) -> list[SglangRequest]:
        """The requests of the running batch and of the last launch that have not ended."""
        rows = dict.fromkeys([*self.running.requests, *self.turns.resting, *self.prefilled])
        return [request for request in rows if request.status is Status.RUNNING]

    def merge_last_prefill(self, chunked: SglangRequest | None) -> None:
        """Requests whose prompts are computed join the running batch; `chunked` has more chunks."""
        last, running = self.last, self.running
        if last is None or last.mode is ForwardMode.DECODE:
            return
        rows = [
            request
            for request in last.prefill
            if request not in last.chunked
            and request is not chunked
            and request.status is Status.RUNNING
        ]
        if last.mode is ForwardMode.MIXED:
            # The mixed batch replaces the running batch; its full flag is not set (rule 7).
            running.prepend(rows)
            self.is_full = False
            self.kept_extend_tokens = last.num_new_tokens
            return
        if rows and not self.num_rows:
            self.kept_extend_tokens = last.num_new_tokens
        if len(rows) < len(last.prefill) or not self.num_rows:
            self.is_full = False
        running.append(rows)
