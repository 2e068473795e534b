"""When the stages of a pipeline begin and end a step."""

from collections import deque
from collections.abc import Iterable

from sim.core.batch import Batch
from sim.core.errors import InvariantError
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel
from sim.latency.wrappers import StagedLatency


class Stages:
    """The stages of a replica, of which no step is fast-forwarded.

        stage 0   | step 0 | step 1 |        | step 2 | step 3 | ...
        stage 1            | step 0 | step 1 |        | step 2 | ...
                                    ^ result of step 0: its requests are in step 2

    A step goes through all stages. Each stage begins it when the stage before has ended it, and
    when the stage itself has ended the step before. Steps in flight have different rows, so the
    first stage need not wait for the result of the last. docs/explanation/pipeline.md has the
    rules.
    """

    def __init__(self, latency: LatencyModel) -> None:
        """`latency` says what each stage has of a step.

        Raises:
            InvariantError: it knows no stages.
        """
        if not isinstance(latency, StagedLatency):
            raise InvariantError("a pipeline needs the times of its stages")
        self._shares_ns = latency.stages_ns
        # When each stage has ended its last step.
        self._free_ns = [0] * latency.num_stages
        # Of the last decided steps, one for each stage: when their tokens are known. 0: the
        # decision launched nothing, or the step samples no token.
        self._tokens_ns: deque[int] = deque([0] * latency.num_stages)

    def take(
        self, ready_ns: int, parts: Iterable[tuple[StepFeatures, int]], batches: Iterable[Batch]
    ) -> tuple[int, int]:
        """A step enters the first stage; returns when that begins it, and when the last ends it.

        A stage computes a step for as long as the slowest rank. Under async scheduling rows may
        decode before the result of their last step is taken in. The first stage then waits for the
        tokens of the step that was decided as many decisions ago as there are stages.
        Source: vLLM 0.33.0, `PPHandler.get_prev_sampled_outputs` (v1/worker/gpu/pp_utils.py).

        Args:
            ready_ns: when the host has prepared the step.
            parts: of each rank with work: its part of the step, and the device time of that.
            batches: those of the ranks with work.
        """
        shares = [self._shares_ns(features, device_ns) for features, device_ns in parts]
        start_ns = end_ns = max(ready_ns, self._free_ns[0], self._tokens_ns[0])
        for stage, of_ranks in enumerate(zip(*shares, strict=True)):
            end_ns = max(end_ns, self._free_ns[stage]) + max(of_ranks)
            self._free_ns[stage] = end_ns
        samples = any(b.decode_rids or any(r.samples for r in b.prefill) for b in batches)
        self._tokens_ns.append(end_ns if samples else 0)
        return start_ns, end_ns

    def decided(self, *, launched: bool) -> None:
        """A decision has been taken; one that launched nothing samples no token."""
        if not launched:
            self._tokens_ns.append(0)
        self._tokens_ns.popleft()
