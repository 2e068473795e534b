"""A replica whose device is a pipeline of stages.

    stage 0   | step 0 | step 1 |        | step 2 | step 3 | ...
    stage 1            | step 0 | step 1 |        | step 2 | ...
                                ^ result of step 0: its requests are in step 2

A step goes through all stages. Each stage begins it when the stage before has ended it, and when
the stage itself has ended the step before. Steps in flight have different rows, so the first stage
need not wait for the result of the last. docs/explanation/pipeline.md has the rules.
"""

from collections import deque
from collections.abc import Iterable

from sim.core.batch import Batch
from sim.core.errors import InvariantError
from sim.des.replicas.replica import Replica, Wait
from sim.engine.pipeline import decides_again
from sim.latency.features import StepFeatures
from sim.latency.model import LatencyModel
from sim.latency.wrappers import StagedLatency
from sim.runlog.builder import StepRun


class Stages:
    """The stages of a replica, and the loop that keeps them busy. No step is fast-forwarded."""

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

    def keep_full(self, replica: Replica) -> Wait:
        """Decide steps until as many are in flight as may be, then wait for the oldest result.

        Where micro-batches take turns, each decision is followed by the oldest result. Otherwise
        the next step may be decided at once (`decides_again`). A decision that
        launched nothing takes a place, too; its result is known at once.
        """
        env, engines = replica.env, replica.engines
        most, takes_turns = engines[0].num_places, engines[0].scheduler.takes_turns
        places: deque[StepRun | None] = deque()
        if takes_turns:
            places.extend([None] * (most - 1))
        num_idle = 0
        while True:
            if replica.others_are_due:
                yield replica.after_others()
            step = replica.begin(0)
            places.append(step)
            if step is not None:
                num_idle = 0
                if not env.skip_to(step.ready_ns):
                    yield replica.at(step.ready_ns)
            else:
                self._tokens_ns.append(0)
            self._tokens_ns.popleft()
            if decides_again(
                engines,
                len(places),
                launched=step is not None,
                oldest_runs=_runs(places[0], env.now_ns),
            ):
                continue
            if not any(places):
                num_idle += 1
                settled = not any(engine.role.decides_again for engine in engines)
                if settled and (num_idle >= most or not takes_turns):
                    yield from replica.wait_for_work()
            yield from _take_in(places.popleft(), replica)


def _take_in(step: StepRun | None, replica: Replica) -> Wait:
    """Wait for the result of a step; None: the decision launched nothing."""
    if step is not None:
        env = replica.env
        if _runs(step, env.now_ns) and not env.skip_to(step.end_ns):
            yield replica.at(step.end_ns)
        replica.finish(step)


def _runs(step: StepRun | None, now_ns: int) -> bool:
    return step is not None and step.end_ns > now_ns
