"""Runs the stages in turn within a budget. A second call continues where the first one stopped."""

from collections.abc import Callable, Sequence
from pathlib import Path

from realrun.clock import Budget
from realrun.suite.process import StageOutcome, arguments_of
from realrun.suite.record import Records, StageRecord
from realrun.suite.stages import Stage

# With less time a stage is not started, because most of it would go into loading.
_LEAST_S = 15.0
_NO_LIMIT_S = 24 * 3_600.0

RunProcess = Callable[[Sequence[str], float], StageOutcome]


def run_suite(
    stages: tuple[Stage, ...],
    folder: Path,
    *,
    device: str,
    budget: Budget,
    say: Callable[[str], None],
    run: RunProcess,
) -> list[StageRecord]:
    """Run the stages that are not done yet, and record each when it ends.

    Each stage gets a share of the remaining budget, by its weight among the stages still to run.
    So the time that one stage does not use goes to the stages after it. A stage without a limit
    does not use the budget.

    Args:
        stages: the stages, most valuable first.
        folder: the folder of the results.
        device: the device of all stages.
        budget: the time for all stages.
        say: called with a line when a stage starts, and with lines when it ends.
        run: `run(arguments, limit_s)` runs a command of `realrun` within a time limit.

    Raises:
        InputError: the records cannot be read or written.
    """
    records = Records(folder, stages)
    left = [stage for stage in stages if stage.is_limited and not records.is_done(stage)]
    # A machine that has changed since the last call may lack kernels, so this is not skipped.
    if left and budget.left_s() >= _LEAST_S:
        left[:0] = [stage for stage in stages if not stage.is_limited]
    for number, stage in enumerate(left):
        left_s = budget.left_s()
        limit_s, limit = _NO_LIMIT_S, "for as long as it takes"
        if stage.is_limited:
            if left_s < _LEAST_S:
                say("the budget is spent; the same command continues from here")
                break
            share = stage.weight / sum(other.weight for other in left[number:])
            limit_s = max(left_s * share, _LEAST_S)
            limit = f"at most {limit_s:.0f} s"
        say(f"{stage.name}: begins, {limit}")
        record = records.note(stage, run(arguments_of(stage, folder, device, limit_s), limit_s))
        if not stage.is_limited:
            budget.extend(left_s - budget.left_s())
        for line in record.printed:
            say(f"  {line}")
        say(f"{stage.name}: {record.status}")
    return records.all()
