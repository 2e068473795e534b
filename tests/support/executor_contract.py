"""What every executor promises."""

from collections.abc import Callable, Sequence

import numpy as np

from sim.core.batch import Batch, Executor, ForwardMode, PrefillRow
from sim.workload.workload import ScriptedRequest
from tests.support.workloads import scripted

MakeExecutor = Callable[[Sequence[ScriptedRequest]], Executor]

_PROMPT_TOKENS = 6
_OUTPUTS = {"a": 3, "b": 5, "c": 9}


def requests_served() -> list[ScriptedRequest]:
    """The requests that the suite runs. An executor without scripts may end them at any token."""
    return [
        scripted(rid, (seed, _PROMPT_TOKENS), output=output, limit=20)
        for seed, (rid, output) in enumerate(_OUTPUTS.items())
    ]


def prefill_batch(*rids: str, samples: bool = True) -> Batch:
    """A prefill batch of whole prompts, or of chunks that do not reach the prompts' ends."""
    extend_len = _PROMPT_TOKENS if samples else _PROMPT_TOKENS - 2
    prefill = tuple(PrefillRow(rid, 0, extend_len, 0, samples) for rid in rids)
    return Batch(ForwardMode.EXTEND, prefill, (), extend_len * len(rids), 0)


def decode_batch(*rids: str, num_generated: int) -> Batch:
    """A decode batch of requests that have `num_generated` output tokens each."""
    num_tokens = (_PROMPT_TOKENS + num_generated) * len(rids)
    return Batch(ForwardMode.DECODE, (), rids, num_tokens, num_tokens)


def run_to_end(executor: Executor, max_tokens: int = 20) -> dict[str, int]:
    """Output tokens of each request when it finishes; `max_tokens` if it does not finish."""
    finished = dict.fromkeys(executor.execute(prefill_batch(*_OUTPUTS)).finished_rids, 1)
    for num_generated in range(1, max_tokens):
        rids = tuple(rid for rid in _OUTPUTS if rid not in finished)
        if rids:
            output = executor.execute(decode_batch(*rids, num_generated=num_generated))
            finished |= dict.fromkeys(output.finished_rids, num_generated + 1)
    return {rid: finished.get(rid, max_tokens) for rid in _OUTPUTS}


class ExecutorContract:
    """Fixture `make_executor: Callable[[Sequence[ScriptedRequest]], Executor]`."""

    def test_executor_finishes_only_rows_that_run_and_once(
        self, make_executor: MakeExecutor
    ) -> None:
        """Only rows of the batch finish, each once; two equal executors agree."""
        executor = make_executor(requests_served())
        alive = set(_OUTPUTS)
        named = executor.execute(prefill_batch(*_OUTPUTS)).finished_rids
        for num_generated in range(1, 20):
            assert set(named) <= alive
            assert len(set(named)) == len(named)
            alive -= set(named)
            if not alive:
                break
            rids = tuple(rid for rid in _OUTPUTS if rid in alive)
            named = executor.execute(decode_batch(*rids, num_generated=num_generated)).finished_rids
        ends = run_to_end(make_executor(requests_served()))
        assert run_to_end(make_executor(requests_served())) == ends

    def test_executor_unfinished_chunk_gives_no_token(self, make_executor: MakeExecutor) -> None:
        """A row that does not sample cannot finish."""
        executor = make_executor(requests_served())
        assert executor.execute(prefill_batch("a", samples=False)).finished_rids == ()

    def test_executor_several_steps_equal_single_ones(self, make_executor: MakeExecutor) -> None:
        """`execute(batch, n)` has the effect of n calls, if no request finishes before the last."""
        one, many = make_executor(requests_served()), make_executor(requests_served())
        for executor in (one, many):
            executor.execute(prefill_batch(*_OUTPUTS))
        num_steps = min(one.steps_to_finish(), 10)
        outputs = [
            one.execute(decode_batch(*_OUTPUTS, num_generated=1 + i)).finished_rids
            for i in range(num_steps)
        ]
        assert not any(outputs[:-1])
        batch = decode_batch(*_OUTPUTS, num_generated=1)
        assert many.execute(batch, num_steps).finished_rids == outputs[-1]
        for rid in _OUTPUTS:
            same = one.output_ids(rid, num_steps + 1) == many.output_ids(rid, num_steps + 1)
            assert same.all()

    def test_executor_output_ids_grow_by_appending(self, make_executor: MakeExecutor) -> None:
        """The first n ids do not depend on how many follow; int64, one for each token."""
        executor = make_executor(requests_served())
        for rid, num_tokens in run_to_end(executor).items():
            ids = executor.output_ids(rid, num_tokens)
            assert ids.dtype == np.int64
            for n in range(num_tokens):
                assert executor.output_ids(rid, n).tolist() == ids[:n].tolist()
            executor.forget(rid)
