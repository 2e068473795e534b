"""Mooncake traces and their quirks."""

import numpy as np
import pytest
from pydantic import ValidationError


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
    reason = f"block_size goes with format mooncake only, not {format_}"
    with pytest.raises(ValidationError, match=reason):
        trace(format_, [row()], block_size=512)


# (the second row, the error line)
BAD = [
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
