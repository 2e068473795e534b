"""Collects what a real server does, and turns it into the lines of a run log afterwards."""

from collections.abc import Iterator
from typing import NamedTuple

from realrun.server.host_copies import HostCopy
from realrun.tokens.drafting import DraftedSteps
from sim.core.batch import Batch
from sim.core.packed import Line
from sim.core.request import RequestSpec
from sim.engine.logged_decision import decode_crc, describe_decision
from sim.engine.records import RequestRecord, StepState
from sim.runlog.decisions import step_line, step_times
from sim.runlog.run_log_file import measured_request_line


class MeasuredTimes(NamedTuple):
    """The times of one step on the run's clock, and durations of its parts.

    Attributes:
        decided_ns: when the step was decided.
        started_ns, ended_ns: when the device started and ended it.
        known_ns: when the host had its tokens.
        host_ns: host time as a simulator counts it; see docs/reference/run-log.md.
        forward_ns: device time of the forward pass and sampling.
        idle_ns: how long the device was idle before the step.
        schedule_ns: host time to process the last result and to decide.
        plan_ns: host time for page tables, inputs and the plan of the attention.
        launch_ns: host time to enqueue the work.
        sample_ns: host time to enqueue the sampling, a part of `launch_ns`; on a CPU the time to
            sample.
        read_back_ns: time until the host had the tokens, from the end on the device, or from the
            end of the next step's launch if that was later.
    """

    decided_ns: int
    started_ns: int
    ended_ns: int
    known_ns: int
    host_ns: int
    forward_ns: int
    idle_ns: int
    schedule_ns: int
    plan_ns: int
    launch_ns: int
    sample_ns: int
    read_back_ns: int


class StepRecord(NamedTuple):
    """One launched step.

    Attributes:
        batch, state: the batch, and the server's state right after the decision.
        times: see MeasuredTimes.
        idle_decisions_ns: times of the decisions that launched nothing, between the step before
            and this one.
        padded_rows: rows of the CUDA graph that ran it; 0 if it ran eagerly.
        max_decode_ctx: longest context of the decode rows, in tokens.
        copies: copies from and to CPU memory, between the step before and this one.
    """

    batch: Batch
    state: StepState
    times: MeasuredTimes
    idle_decisions_ns: tuple[int, ...]
    padded_rows: int
    max_decode_ctx: int
    copies: tuple[HostCopy, ...] = ()


class RunRecorder:
    """Collects steps, requests and token times of one server.

    Attributes:
        output_ids: the generated tokens of each request; empty if outputs were scripted.
        drafted_steps: by request, what its steps drafted and accepted; empty without drafts.
    """

    def __init__(self) -> None:
        self.output_ids: dict[str, list[int]] = {}
        self.drafted_steps: dict[str, DraftedSteps] = {}
        self._steps: list[StepRecord] = []
        self._specs: dict[str, RequestSpec] = {}
        self._records: dict[str, RequestRecord] = {}
        self._token_ns: dict[str, list[int]] = {}

    @property
    def num_over(self) -> int:
        """Requests that finished, were rejected or aborted."""
        return len(self._records)

    def submitted(self, spec: RequestSpec) -> None:
        self._specs[spec.rid] = spec
        self._token_ns[spec.rid] = []

    def forget(self, rid: str) -> None:
        """Leave a request out."""
        del self._specs[rid], self._token_ns[rid]

    def records(self) -> Iterator[RequestRecord]:
        """Requests in order of arrival."""
        return (self._records[rid] for rid in self._specs)

    def over(self, record: RequestRecord) -> None:
        self._records[record.spec.rid] = record

    def answered(
        self, rid: str, output_ids: list[int], drafted: DraftedSteps | None = None
    ) -> None:
        """Note what the model generated for a request."""
        self.output_ids[rid] = output_ids
        if drafted is not None:
            self.drafted_steps[rid] = drafted

    def stepped(self, step: StepRecord) -> None:
        self._steps.append(step)

    def token(self, rid: str, known_ns: int) -> None:
        """Note when the host knew a request's next token."""
        self._token_ns[rid].append(known_ns)

    def lines(self) -> Iterator[Line]:
        """Steps in order of launch, then requests in order of arrival."""
        for number, step in enumerate(self._steps):
            yield _step_line(number, step)
        for rid in self._specs:
            line = measured_request_line(
                self._records[rid], self._token_ns[rid], has_drafts=bool(self.drafted_steps)
            )
            if rid in self.drafted_steps:
                steps = self.drafted_steps[rid]
                line["proposed_by_step"] = steps.proposed
                line["accepted_by_step"] = steps.accepted
            if rid in self.output_ids:
                line["output_ids"] = self.output_ids[rid]
            yield line


_DIRECTIONS = {False: "load", True: "store"}


def _step_line(number: int, step: StepRecord) -> Line:
    times = step.times
    copies = [[_DIRECTIONS[is_store], size, of.forward_ns] for is_store, size, of in step.copies]
    return step_line(
        number,
        step_times(times.decided_ns, times.started_ns, times.ended_ns, times.host_ns),
        describe_decision(step.batch, step.state, decode_crc(step.batch)),
        measured={
            "t_known_ns": times.known_ns,
            "forward_ns": times.forward_ns,
            "idle_ns": times.idle_ns,
            "schedule_ns": times.schedule_ns,
            "plan_ns": times.plan_ns,
            "launch_ns": times.launch_ns,
            "sample_ns": times.sample_ns,
            "read_back_ns": times.read_back_ns,
            "looks_ns": list(step.idle_decisions_ns),
            "padded_rows": step.padded_rows,
            "max_decode_ctx": step.max_decode_ctx,
            "slots": step.state.slots,
            **({"copies": copies} if copies else {}),
        },
    )
