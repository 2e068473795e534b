"""Attention looked up in grids: at their points, between them, and beyond."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.latency.layers.attention import DecodeAttention, MixedAttention, PrefillAttention

CHUNKS, CACHED, ROWS, CONTEXTS = (16, 64), (0, 100, 1000), (1, 4, 16), (16, 256, 4096)


def bilinear(chunk, cached, rows, context):
    return 8 + chunk * (0.5 + cached / 100) + rows * (1 + context / 50)


def prefill_of(time, chunks=CHUNKS, cached=CACHED):
    return PrefillAttention({c: {k: time(c, k, 0, 0) for k in cached} for c in chunks})


def decode_of(time):
    return DecodeAttention({n: {k: time(0, 0, n, k) for k in CONTEXTS} for n in ROWS})


def mixed_of(time, cached=lambda chunk: CACHED):
    grid = {
        chunk: {
            rows: {c: {k: time(chunk, c, rows, k) for k in CONTEXTS} for c in cached(chunk)}
            for rows in ROWS
        }
        for chunk in CHUNKS
    }
    return MixedAttention(prefill_of(time), decode_of(time), grid)


def uneven(chunk, cached, rows, context):
    """A function that is not linear in any direction."""
    return 8 + (chunk * 7919 + cached * 104729 + rows * 1299709 + context * 15485863) % 101


def test_attention_meets_every_point_of_its_grid():
    """Exactly, in all three tables."""
    prefill, decode, mixed = prefill_of(uneven), decode_of(uneven), mixed_of(uneven)
    for chunk, cached in product(CHUNKS, CACHED):
        assert prefill.at(chunk, cached) == uneven(chunk, cached, 0, 0)
        for rows, context in product(ROWS, CONTEXTS):
            at = mixed.blend(chunk, cached, rows).at(context)
            assert at == uneven(chunk, cached, rows, context)
            assert decode.curve(rows).at(context) == uneven(0, 0, rows, context)


@given(
    chunk=st.integers(1, 64),
    cached=st.integers(0, 3000),
    rows=st.integers(1, 40),
    context=st.integers(0, 10_000),
)
def test_attention_of_a_bilinear_kernel_is_right_everywhere(chunk, cached, rows, context):
    """Between the points of the grid, under its first ones and beyond its last ones.

    Chunks beyond the longest one are another matter.
    """
    mixed, prefill, decode = mixed_of(bilinear), prefill_of(bilinear), decode_of(bilinear)
    at = mixed.blend(chunk, cached, rows).at(context)
    assert at == pytest.approx(bilinear(chunk, cached, rows, context), rel=1e-9)
    assert prefill.at(chunk, cached) == pytest.approx(bilinear(chunk, cached, 0, 0), rel=1e-9)
    alone = decode.curve(rows).at(context)
    assert alone == pytest.approx(bilinear(0, 0, rows, context), rel=1e-9)


@given(chunk=st.integers(16, 64), cached=st.integers(0, 2000), rows=st.integers(1, 16))
def test_attention_of_two_interleaved_sweeps_is_that_of_one(chunk, cached, rows):
    """Each chunk has the cached tokens of its own sweep as knots."""
    mixed = mixed_of(bilinear, cached=lambda chunk: (0, 50, 2000) if chunk == 64 else (0, 1000))
    wanted = bilinear(chunk, cached, rows, 500)
    assert mixed.blend(chunk, cached, rows).at(500) == pytest.approx(wanted, rel=1e-9)


def test_attention_without_mixed_calls_adds_prefill_and_decode():
    """Each by itself, one after the other."""
    mixed = MixedAttention(prefill_of(uneven), decode_of(uneven), {})
    wanted = uneven(64, 100, 0, 0) + uneven(0, 0, 4, 256)
    assert mixed.blend(64, 100, 4).at(256) == wanted
    assert mixed.max_rows == 0.0


def test_attention_of_rows_never_measured_with_a_chunk_goes_on_with_its_rows():
    """Measured with up to 16: for 32, twice what the last doubling adds."""
    mixed = mixed_of(lambda chunk, cached, rows, context: float(100 + rows * rows))
    slope = (100 + 16**2 - (100 + 4**2)) / 12
    assert mixed.blend(16, 0, 32).at(16) == pytest.approx(100 + 16**2 + 16 * slope)


def test_attention_of_a_chunk_longer_than_any_with_rows_grows_as_it_does_alone():
    """The longest chunk with rows took 8 more than alone; the longer one does so too."""
    prefill = prefill_of(lambda c, k, n, x: float(c * c), chunks=(16, 64, 256))
    grid = {64: {4: {0: {100: 64.0**2 + 8}}}}
    mixed = MixedAttention(prefill, DecodeAttention({4: {100: 5.0}}), grid)
    assert mixed.blend(256, 0, 4).at(100) == 256.0**2 + 8


def test_prefill_of_a_chunk_measured_without_prefix_grows_as_a_shorter_one():
    """Twice the tokens, twice the growth with every cached token."""
    prefill = PrefillAttention({100: {0: 10.0, 50: 14.0}, 200: {0: 30.0}})
    assert prefill.at(200, 0) == 30.0
    assert prefill.at(200, 50) == 38.0
    assert prefill.max_cached == 50


@given(chunk=st.integers(64, 5000), cached=st.integers(0, 3000))
def test_prefill_of_a_chunk_longer_than_any_goes_by_its_pairs(chunk, cached):
    """A kernel whose time is that of its query-key pairs comes out right at any length."""

    def pairs(chunk, cached, rows, context):
        return chunk * (cached + chunk / 2)

    assert prefill_of(pairs).at(chunk, cached) == pytest.approx(pairs(chunk, cached, 0, 0))
    keys = {c: {key: c * key for key in (8.0, 64.0)} for c in CHUNKS}
    by_key = PrefillAttention(keys, by_key=True)
    assert by_key.at(chunk, cached) == pytest.approx(chunk * cached)


def test_prefill_knows_its_shortest_call():
    """What launching one takes."""
    assert PrefillAttention({16: {0: 8.0, 50: 14.0}, 32: {0: 7.5}}).shortest == 7.5


def test_attention_is_never_negative():
    """Noise of two short calls must not make time run backwards."""
    prefill = PrefillAttention({16: {0: 1.0}, 32: {0: 9.0}})
    assert prefill.at(1, 0) == 0.0
    mixed = MixedAttention(prefill, DecodeAttention({1: {16: 9.0, 32: 1.0}}), {})
    assert mixed.blend(1, 0, 1).at(500) == 0.0
