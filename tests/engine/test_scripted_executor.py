"""The scripted executor ends outputs where scripts say, and nowhere else."""

import pytest

from sim.core.batch import (
    END_TOKEN,
    NEVER_STEPS,
    Batch,
    ForwardMode,
    OutputScript,
    PrefillRow,
    ScriptedExecutor,
)
from sim.core.tokens import stream_token_ids


@pytest.fixture
def executor():
    return ScriptedExecutor()


def prefill(executor, *rids, num_prior=0, samples=True, stopped=()):
    rows = tuple(PrefillRow(rid, 0, 5, num_prior, samples) for rid in rids)
    return executor.execute(Batch(ForwardMode.EXTEND, rows, (), 5, 0, stopped)).finished_rids


def decode(executor, *rids, num_steps=1, stopped=()):
    batch = Batch(ForwardMode.DECODE, (), rids, 0, 0, stopped)
    return executor.execute(batch, num_steps).finished_rids


def add(executor, rid, num_tokens, *, ignore_eos=False):
    executor.add(rid, OutputScript(num_tokens, 7), ignore_eos=ignore_eos)


@pytest.mark.parametrize("num_tokens", [1, 2, 5])
def test_output_ends_at_its_scripted_token(executor, num_tokens):
    """The prefill gives the first token, each decode step one more."""
    add(executor, "a", num_tokens)
    ended = [prefill(executor, "a")]
    while not ended[-1]:
        assert executor.steps_to_finish() == num_tokens - len(ended)
        ended.append(decode(executor, "a"))
    assert len(ended) == num_tokens
    assert ended[-1] == ("a",)
    assert executor.steps_to_finish() == NEVER_STEPS


def test_output_that_ignores_its_end_never_ends(executor):
    """Only the limit stops it, which is not the executor's business."""
    add(executor, "a", 2, ignore_eos=True)
    assert prefill(executor, "a") == ()
    assert executor.steps_to_finish() == NEVER_STEPS
    assert decode(executor, "a", num_steps=100) == ()


def test_steps_to_finish_is_the_nearest_end(executor):
    """Whoever joins or leaves, in whatever order."""
    for rid, num_tokens in (("a", 10), ("b", 4), ("c", 6)):
        add(executor, rid, num_tokens)
    prefill(executor, "a")
    assert executor.steps_to_finish() == 9
    decode(executor, "a", num_steps=3)
    prefill(executor, "b", "c")
    assert executor.steps_to_finish() == 3
    executor.forget("b")
    assert executor.steps_to_finish() == 5
    assert decode(executor, "a", "c", num_steps=5) == ("c",)
    assert executor.steps_to_finish() == 1


def test_retracted_output_goes_on_where_it_was(executor):
    """Stopped after 3 of 6 tokens, it has 2 to go after the token of its next prefill."""
    add(executor, "a", 6)
    add(executor, "b", 100)
    prefill(executor, "a", "b")
    decode(executor, "a", "b", num_steps=2)
    assert decode(executor, "b", num_steps=50, stopped=("a",)) == ()
    assert prefill(executor, "a", num_prior=3) == ()
    assert executor.steps_to_finish() == 2
    assert decode(executor, "a", "b", num_steps=2) == ("a",)


def test_retracted_output_may_end_with_its_next_prefill(executor):
    """One token was missing, and the prefill gives it."""
    add(executor, "a", 4)
    prefill(executor, "a")
    decode(executor, "a", num_steps=2)
    assert prefill(executor, "a", num_prior=3, stopped=("a",)) == ("a",)


def test_chunk_that_does_not_sample_gives_no_token(executor):
    """Even an output of one token does not end there."""
    add(executor, "a", 1)
    assert prefill(executor, "a", samples=False) == ()
    assert prefill(executor, "a") == ("a",)


def test_mixed_batch_joins_and_decodes_at_once(executor):
    """A row that joins gets its first token; those before it get their next."""
    add(executor, "a", 3)
    add(executor, "b", 2)
    prefill(executor, "a")
    row = PrefillRow("b", 0, 5, 0, samples=True)
    mixed = Batch(ForwardMode.MIXED, (row,), ("a",), 0, 0)
    assert executor.execute(mixed).finished_rids == ()
    assert sorted(decode(executor, "a", "b")) == ["a", "b"]


def test_output_ids_are_the_stream_up_to_the_end_token(executor):
    """The end token stands in the place of the last, unless the end is ignored."""
    add(executor, "a", 5)
    add(executor, "b", 5, ignore_eos=True)
    stream = stream_token_ids(7, 0, 8).tolist()
    assert executor.output_ids("a", 4).tolist() == stream[:4]
    assert executor.output_ids("a", 5).tolist() == [*stream[:4], END_TOKEN]
    assert executor.output_ids("b", 8).tolist() == stream


def test_output_part_is_that_part_and_outlives_the_request(executor):
    """A cache keeps it when the request is long over."""
    add(executor, "a", 5)
    ids = executor.output_ids("a", 5)
    part = executor.output_part("a", 2, 5)
    executor.forget("a")
    assert len(part) == 3
    assert part[:].tolist() == ids[2:].tolist()
    assert part[1:3].tolist() == [ids[3], END_TOKEN]
