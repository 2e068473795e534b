"""SGLang's scheduler and its adder, which also note what they decide."""

from typing import Any

from sglang.srt.managers.schedule_policy import PrefillAdder
from sglang.srt.managers.scheduler import Scheduler


class WatchedScheduler(Scheduler):
    """Notes what a case's log says of a step beside its batch.

    Attributes:
        adder: the adder of the last decision, if it tried to admit.
        retracted: ids of requests that were retracted or put back for another one.
        preempted: for each request that others made room for, its id and theirs.
        aborted: ids of requests that were given up.
    """

    # `build_scheduler` makes its parts; SGLang's own constructor starts a model.
    def __init__(self) -> None:
        self.forget()
        self.aborted: list[str] = []

    def forget(self) -> None:
        """A new decision begins."""
        self.adder: Any = None
        self.retracted: list[str] = []
        self.preempted: list[Any] = []
        self.aborted = []

    def get_prefill_adder_class(self) -> type:
        owner = self

        class OwnedAdder(WatchedAdder):
            scheduler = owner

        return OwnedAdder

    def _add_request_to_queue(self, request: Any, is_retracted: bool = False) -> None:
        if is_retracted:
            self.retracted.append(request.rid)
        super()._add_request_to_queue(request, is_retracted)

    def send_abort_output(self, _: Any, request: Any) -> None:
        self.aborted.append(request.rid)

    def publish_load_snapshot(self, force: bool = False) -> None: ...
    def maybe_send_health_check_signal(self) -> None: ...
    def _record_step_counters(self, batch: Any, result: Any) -> None: ...
    def _maybe_clear_mm_inputs(self, batch: Any) -> None: ...


class WatchedAdder(PrefillAdder):
    """Notes its budget before anything is added, and the answer for each candidate."""

    scheduler: WatchedScheduler

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.scheduler.adder = self
        self.verdicts: list[list[str]] = []
        self.opening = [
            int(self.rem_total_tokens), int(self.cur_rem_tokens),
            self.rem_input_tokens, self.rem_chunk_tokens,
        ]  # fmt: skip

    def add_one_req(self, request: Any, *given: Any, **options: Any) -> Any:
        answer = super().add_one_req(request, *given, **options)
        self.verdicts.append([request.rid, answer.name])
        return answer

    def stop(self) -> list[str] | None:
        """The first candidate that was not answered CONTINUE; it may have been admitted."""
        return next((verdict for verdict in self.verdicts if verdict[1] != "CONTINUE"), None)

    def preempt_to_schedule(self, request: Any) -> bool:
        """SGLang takes several victims from a set, in any order; here in the running batch's."""
        num_before = len(self.preempt_list)
        place = {running.rid: i for i, running in enumerate(self.running_batch.reqs)}
        made_room = bool(super().preempt_to_schedule(request))
        if made_room:
            victims = sorted(self.preempt_list[num_before:], key=lambda each: place[each.rid])
            self.preempt_list[num_before:] = victims
            self.scheduler.preempted.append([request.rid, [each.rid for each in victims]])
        return made_room
