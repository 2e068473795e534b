"""Output tokens are exactly those of the scripts, or those of the model."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from realrun.tokens.outputs import SAMPLED_LAST, ForcedTokens, GreedyTokens
from sim.core.batch import Batch, ForwardMode, OutputScript, PrefillRow, ScriptedExecutor
from sim.workload.workload import ScriptedRequest
from tests.support.workloads import scripted

lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.booleans()), min_size=1)


def decode(rids, stopped=()):
    return Batch(ForwardMode.DECODE, (), rids, 0, 0, stopped)


def with_known(request, number):
    """The request; a model generated the first tokens of its output, or all of them, or none."""
    script = request.script
    num_known = number * 5 % (script.num_tokens + 1)
    known_ids = np.arange(100, 100 + num_known, dtype=np.int64)
    return ScriptedRequest(request.spec, OutputScript(script.num_tokens, script.seed, known_ids))


@given(lengths)
def test_forced_inputs_are_the_script(lengths):
    """Whatever row and step: the token fed is the one the simulator's executor would name."""
    forced, reference = ForcedTokens(), ScriptedExecutor()
    requests = [
        with_known(scripted(f"r{i}", (i, 3 + i), output=output, limit=99, ignore_eos=ignore_eos), i)
        for i, (output, _, ignore_eos) in enumerate(lengths)
    ]
    for request in requests:
        forced.add(request)
        reference.add(request.spec.rid, request.script, ignore_eos=request.spec.ignore_eos)
    generated = [min(done, output) for output, done, _ in lengths]
    kv_lens = np.array([3 + i + num for i, num in enumerate(generated)], dtype=np.int64)
    inputs = forced.decode_inputs([request.spec.rid for request in requests], kv_lens)
    for request, num_generated, token in zip(requests, generated, inputs.tolist(), strict=True):
        if num_generated <= len(request.script.known_ids):
            assert token == 100 + num_generated - 1
        assert token == reference.output_ids(request.spec.rid, num_generated)[-1]


def test_greedy_outputs_are_what_was_sampled():
    """First tokens of prefill rows that sample, then a token a decode row."""
    greedy = GreedyTokens(50, frozenset({9}))
    prepared = greedy.add(scripted("a", (1, 5), output=4))
    assert (prepared.spec.prompt.token_ids() < 50).all()
    greedy.add(scripted("b", (2, 5), output=4))
    rows = (PrefillRow("a", 0, 5, 0, True), PrefillRow("b", 0, 3, 0, False))
    extend = Batch(ForwardMode.EXTEND, rows, (), 8, 0)
    assert greedy.take(extend, np.array([7])).finished_rids == ()
    mixed = Batch(ForwardMode.MIXED, (PrefillRow("b", 3, 2, 0, True),), ("a",), 12, 6)
    assert greedy.take(mixed, np.array([9, 8])).finished_rids == ("b",)
    assert greedy.output_ids("a", 2).tolist() == [7, 8]
    assert greedy.decode_inputs(("a",), np.array([8])).tolist() == [SAMPLED_LAST]
    greedy.forget("b")
    assert greedy.final_outputs == {"b": [9]}


def test_greedy_token_in_flight_at_a_retraction_is_computed_again():
    """What came out after a request was put back does not count twice."""
    greedy = GreedyTokens(50, frozenset())
    greedy.add(scripted("a", (1, 5), output=9))
    greedy.take(
        Batch(ForwardMode.EXTEND, (PrefillRow("a", 0, 5, 0, True),), (), 5, 0), np.array([7])
    )
    greedy.take(decode(("a",)), np.array([8]))
    greedy.take(decode(("a",)), np.array([3]))  # in flight when "a" was put back with 2 tokens
    again = Batch(ForwardMode.EXTEND, (PrefillRow("a", 0, 7, 2, True),), (), 7, 0)
    greedy.take(again, np.array([3]))
    assert greedy.output_ids("a", 3).tolist() == [7, 8, 3]


def test_greedy_token_after_the_end_is_dropped():
    """Under overlap one step more runs before the end is known."""
    greedy = GreedyTokens(50, frozenset({9}))
    greedy.add(scripted("a", (1, 5), output=9))
    greedy.take(
        Batch(ForwardMode.EXTEND, (PrefillRow("a", 0, 5, 0, True),), (), 5, 0), np.array([9])
    )
    greedy.forget("a")
    assert greedy.take(decode(("a",)), np.array([4])).finished_rids == ()
    assert greedy.final_outputs == {"a": [9]}
