"""What an executor with drafts says of coming steps is what the steps then give."""

from hypothesis import given
from hypothesis import strategies as st

from sim.core.batch import Batch, ForwardMode, OutputScript, PrefillRow
from sim.engine.acceptance import RecordedAcceptance, Speculation
from sim.engine.row_executor import RowExecutor
from tests.support.random_drafts import speculations


def prefilled(speculation, outputs):
    """An executor whose requests have their first tokens; `outputs`: length, whether endless."""
    executor = RowExecutor(speculation)
    for number, (num_tokens, endless) in enumerate(outputs):
        executor.add(f"r{number}", OutputScript(num_tokens, 5 + number), ignore_eos=endless)
    rows = tuple(PrefillRow(rid, 0, 4, 0, True) for rid in rids_of(outputs))
    executor.execute(Batch(ForwardMode.EXTEND, rows, (), 4 * len(rows), 0))
    return executor


def rids_of(outputs):
    return tuple(f"r{number}" for number in range(len(outputs)))


def verify(executor, rids, num_drafts, num_steps=1):
    drafts = (num_drafts,) * len(rids)
    return executor.execute(Batch(ForwardMode.DECODE, (), rids, 0, 0, drafts=drafts), num_steps)


@given(
    speculations(),
    st.lists(st.tuples(st.integers(2, 60), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 20),
    st.integers(0, 2),
)
def test_coming_steps_are_those_of_single_executions(speculation, outputs, most, num_mixed):
    """Until the first that ends a row: by its output's end, or its limit of 40 tokens more."""
    rids, k = rids_of(outputs), speculation.num_tokens
    outputs = [(num_tokens + num_mixed, endless) for num_tokens, endless in outputs]
    one, many = prefilled(speculation, outputs), prefilled(speculation, outputs)
    for executor in (one, many):
        for _ in range(num_mixed):
            verify(executor, rids, 0)
    ahead = many.outputs_ahead(rids, [40] * len(rids), most)
    num_steps = 0 if ahead is None else ahead.shape[1] - 1
    assert num_steps <= most
    so_far = [1 + num_mixed] * len(rids)
    for step in range(num_steps):
        assert ahead[:, step].tolist() == so_far
        output = verify(one, rids, k)
        assert not output.finished_rids
        so_far = [before + new for before, new in zip(so_far, output.num_sampled, strict=True)]
    if num_steps:
        assert ahead[:, -1].tolist() == so_far
        gained = (ahead[:, -1] - ahead[:, 0]).tolist()
        assert verify(many, rids, k, num_steps).num_sampled == tuple(gained)
    if num_steps < most:
        last = verify(one, rids, k)
        so_far = [before + new for before, new in zip(so_far, last.num_sampled, strict=True)]
        assert last.finished_rids or max(so_far) > 40 + num_mixed


def test_steps_after_a_mixed_one_are_worked_out_anew():
    """The mixed step takes the token that a piece of three begins with; two are left of it."""
    executor = prefilled(
        Speculation("eagle", 2, RecordedAcceptance({"r0": [2, 0, 1]})), [(30, False)]
    )
    assert executor.outputs_ahead(("r0",), [29], 3).tolist() == [[1, 4, 5, 7]]
    assert verify(executor, ("r0",), 0).num_sampled == (1,)
    assert executor.outputs_ahead(("r0",), [28], 3).tolist() == [[2, 4, 5, 7]]
    assert verify(executor, ("r0",), 2).num_sampled == (2,)
