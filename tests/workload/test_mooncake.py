"""Mooncake traces and their quirks."""

from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from sim.core.tokens import stream_token_ids


def row(timestamp=0, input_length=600, output_length=5, hash_ids=(0, 1), **more):
    return {
        "timestamp": timestamp,
        "input_length": input_length,
        "output_length": output_length,
        "hash_ids": hash_ids,
        **more,
    }


def test_mooncake_row_becomes_a_request(trace):
    """Milliseconds, block ids, lengths; the request's name is its row number."""
    first, second = trace("mooncake", [row(27, hash_ids=[4, 2]), row(3000)]).arrivals()
    assert (first.spec.rid, second.spec.rid) == ("0", "1")
    assert (first.spec.arrival_ns, second.spec.arrival_ns) == (27_000_000, 3_000_000_000)
    assert (len(first.spec.prompt), first.spec.prompt.block_ids.tolist()) == (600, [4, 2])
    assert (first.spec.max_new_tokens, first.script.num_tokens) == (5, 5)
    assert first.script.seed != second.script.seed


def test_mooncake_last_block_is_partial(trace):
    """600 tokens are 512 of the first block and 88 of the second."""
    one, other = trace("mooncake", [row(), row(input_length=1024)]).arrivals()
    assert len(one.spec.prompt.token_ids()) == 600
    assert np.array_equal(other.spec.prompt.token_ids()[:600], one.spec.prompt.token_ids())


def test_mooncake_equal_times_keep_the_order_of_the_file(trace):
    """Arrivals come in ticks of three seconds, ten requests a tick."""
    rows = [row(3000 * (i // 10), output_length=i + 1) for i in range(30)]
    lengths = [request.script.num_tokens for request in trace("mooncake", rows).arrivals()]
    assert lengths == list(range(1, 31))


def test_mooncake_fractions_of_a_millisecond_are_exact_to_the_ns(trace):
    """1.1 ms is 1,100,000 ns; 1697000000000.000001 ms is no float but a time."""
    rows = [
        f'{{"timestamp": {t}, "input_length": 1, "output_length": 1, "hash_ids": [3]}}'
        for t in ("1.1", "2.5e0", "1697000000000.000001")
    ]
    times = [request.spec.arrival_ns for request in trace("mooncake", rows).arrivals()]
    assert times == [1_100_000, 2_500_000, 1_697_000_000_000_000_001]


def test_mooncake_block_size_can_be_set(trace):
    """Sixteen tokens a block: 600 tokens have 38 ids."""
    (request,) = trace("mooncake", [row(hash_ids=list(range(38)))], block_size=16).arrivals()
    assert request.spec.prompt.block_size == 16
    assert len(request.spec.prompt.token_ids()) == 600


def test_mooncake_other_fields_are_left_alone(trace):
    """Later traces carry more than this one reads."""
    assert trace("mooncake", [row(type="chat", turn=3)]).num_requests == 1


@pytest.mark.parametrize("format_", ["azure", "servetwin", "autobench"])
def test_mooncake_block_size_with_another_format_is_refused(trace, format_):
    """Other formats have no blocks."""
    reason = f"block_size goes only with format mooncake or bailian, not {format_}"
    with pytest.raises(ValidationError, match=reason):
        trace(format_, [row()], block_size=512)


def test_mooncake_rows_without_hash_ids_share_nothing(trace):
    """With ids in some rows only, the others' tokens are their own."""
    bare = {"timestamp": 1, "input_length": 600, "output_length": 5}
    some = trace("mooncake", [row(0), bare, bare])
    assert some.notes == ("2 rows have no hash_ids: their prompts share nothing",)
    for workload in (some, trace("mooncake", [bare, bare])):
        tokens = [set(r.spec.prompt.token_ids().tolist()) for r in workload.arrivals()]
        assert all(len(ids) == 600 for ids in tokens)
        assert all(not a & b for a, b in pairwise(tokens))


def turn(**fields):
    return {"session_id": "a", "input_length": 600, "output_length": 5} | fields


def test_mooncake_delay_waits_for_the_answer_and_repeats_the_conversation(trace):
    """Sessions of agents: 40 ms of a tool after the first answer, then the whole history."""
    rows = [turn(timestamp=3000, hash_ids=[1, 2]), row(3500), turn(delay=40, input_length=100)]
    workload = trace("mooncake", rows, time_scale=0.5, max_pause_s=0.03)
    first, other = workload.clients
    assert [t.think_ns for t in first] == [1_500_000_000, 15_000_000]
    assert [t.think_ns for t in other] == [1_750_000_000]
    asked, again = (t.request.spec.prompt.token_ids() for t in first)
    answer = first[0].request.script
    assert len(again) == 600 + 4 + 100
    assert np.array_equal(again[:600], asked)
    assert np.array_equal(again[600:604], stream_token_ids(answer.seed, 0, 4))


def test_mooncake_whole_turns_are_sent_as_they_are(trace):
    """AIPerf's rows may say that they hold the conversation before them."""
    whole = {"context_mode": "message_array_with_responses"}
    rows = [turn(timestamp=0, **whole), turn(delay=0, input_length=700, **whole)]
    (turns,) = trace("mooncake", rows).clients
    assert [len(t.request.spec.prompt) for t in turns] == [600, 700]


def test_mooncake_sessions_without_times_get_arrivals(trace):
    """AIPerf's sessions need no time stamps; then the scenario says when they begin."""
    rows = [turn(session_id=name) for name in "ab"] + [turn(session_id="a")]
    first, second = trace("mooncake", rows, arrivals={"kind": "constant", "rate_rps": 2}).clients
    assert [first[0].think_ns, second[0].think_ns] == [0, 500_000_000]
    assert [t.request.spec.session for t in first] == ["a", "a"]


# (the second row, the error line)
BAD = [
    (turn(), "timestamp: missing"),
    (turn(session_id=7), "session_id: 7 is not a text that can be printed"),
    (
        turn(timestamp=3000, context_mode="x"),
        'context_mode: "x" is neither deltas_without_responses nor message_array_with_responses',
    ),
    (row(3000, hash_ids=[0]), "hash_ids: 1 ids, but input_length / 512 rounded up is 2"),
    (row(3000, hash_ids=[0, 1, 2]), "hash_ids: 3 ids, but input_length / 512 rounded up is 2"),
    (row(3000, hash_ids=7), "hash_ids: 7 is not a list"),
    (row(3000, hash_ids=[0, -1]), "hash_ids: -1 is not a whole number from 0 to 2**40 - 1"),
    (
        row(3000, hash_ids=[0, 2**40]),
        "hash_ids: 1099511627776 is not a whole number from 0 to 2**40 - 1",
    ),
    (row(3000, hash_ids=[0, 1.5]), "hash_ids: 1.5 is not a whole number from 0 to 2**40 - 1"),
    (row(3000, hash_ids=[0, True]), "hash_ids: true is not a whole number from 0 to 2**40 - 1"),
    (row(3000, hash_ids=None), "hash_ids: missing"),
    (row(2999), "timestamp: is before the previous row's; rows must be in order of time"),
    (row("3000"), 'timestamp: "3000" is not a finite number'),
    (row(float("inf")), "timestamp: Infinity is not a finite number"),
    (row(1e13), "timestamp: 10000000000000.0 is above 4611686018427"),
    (row(3000, input_length=0, hash_ids=[]), "input_length: 0 is below 1"),
    (row(3000, input_length=600.0), "input_length: 600.0 is not a whole number"),
    (row(3000, output_length=0), "output_length: 0 is below 1"),
    (row(3000, output_length=float("nan")), "output_length: NaN is not a whole number"),
    (row(3000, output_length=None), "output_length: null is not a whole number"),
    ({"timestamp": 3000}, "input_length: missing"),
    ({}, "timestamp: missing"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_mooncake_bad_row_names_line_and_field(error_of, bad, reason):
    """Lines count from 1."""
    assert error_of("mooncake", [row(3000), bad, row(3000)]) == f"t:2: {reason}"
