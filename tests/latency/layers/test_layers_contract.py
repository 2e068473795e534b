"""Composed models keep the contract of their seam, and count the steps that leave their tables."""

from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.latency.model import Ranged
from sim.testing.contracts import LatencyModelContract
from tests.support.latency_steps import decode_step, extend_step, mixed_step

HOST = {"host_s": 0.0007, "host_per_request_s": 1e-6 / 3}
SECTIONS = {
    "serving_sim": ("serving_sim", HOST),
    "serving_sim, spread": ("serving_sim", HOST | {"spread_correction": True}),
    "vidur": ("vidur", {"num_layers": 7}),
    "splitwise": (
        "splitwise",
        HOST | {"table_model": "llama2-70b", "table_hardware": "h100-80gb", "tp": 4},
    ),
}


@pytest.fixture(params=[False, True], ids=["in turn", "overlapped"])
def overlaps(request):
    """Whether the host time is hidden by device time."""
    return request.param


@pytest.fixture(params=sorted(SECTIONS))
def make_model(request, build, overlaps):
    kind, keys = SECTIONS[request.param]
    return partial(build, kind, overlaps=overlaps, **keys)


@pytest.fixture
def model(make_model):
    return make_model()


class TestLayersLatency(LatencyModelContract):
    """One model of each format, of each host time and of each correction for unequal contexts."""


same_tables_for_all = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@same_tables_for_all
@given(
    rows=st.integers(1, 400),
    mean=st.integers(1, 6_000),
    extra=st.integers(0, 10_000),
    less=st.integers(0, 6_000),
    known=st.tuples(st.booleans(), st.booleans()),
    num_steps=st.integers(1, 60),
)
def test_layers_a_run_equals_its_steps(model, rows, mean, extra, less, known, num_steps):
    """To the bit, whether the longest and the shortest row are known or not."""
    longest, shortest = known[0] * (mean + extra), known[1] * max(mean - less, 1)
    first = decode_step(rows, rows * mean + extra % rows, longest, shortest)
    device_ns, host_ns = model.decode_run_ns(first, num_steps)
    step = first
    for i in range(num_steps):
        assert model.step_ns(step) == (int(device_ns[i]), int(host_ns[i]))
        step = step.next_decode()


CHUNKS = st.lists(
    st.tuples(st.integers(0, 4_000), st.integers(1, 3_000)), min_size=1, max_size=5
).map(tuple)


@same_tables_for_all
@given(prefill=CHUNKS, rows=st.integers(0, 300), mean=st.integers(1, 6_000))
def test_layers_prefill_rows_cost_the_same_in_any_order(model, prefill, rows, mean):
    """Which of them goes with the decode rows does not depend on their order."""
    times = {
        model.step_ns(step(order, rows, mean)).device_ns
        for order in (prefill, prefill[::-1], tuple(sorted(prefill)))
    }
    assert max(times) - min(times) <= 1


@same_tables_for_all
@given(
    prefill=CHUNKS, rows=st.integers(0, 300), mean=st.integers(1, 5_000), more=st.integers(1, 99)
)
def test_layers_more_new_tokens_never_cost_less(model, prefill, rows, mean, more):
    """The small tables rise along every axis, so do the steps."""
    cached, new = prefill[0]
    longer = ((cached, new + more), *prefill[1:])
    before, after = (model.step_ns(step(rows_of, rows, mean)) for rows_of in (prefill, longer))
    assert after.device_ns >= before.device_ns - 1


def step(prefill, rows, mean):
    return mixed_step(prefill, rows, rows * mean) if rows else extend_step(*prefill)


def test_layers_steps_outside_the_table_are_counted(build):
    """Once they ran; each size with how far it went and how far the table goes."""
    model = build("serving_sim")
    assert isinstance(model, Ranged)
    for inside in (decode_step(16, 16 * 257, 4097), extend_step((1000, 64)), decode_step(1, 17)):
        model.step_ns(inside)
        model.consume(inside, 1)
    assert str(model.left_range()) == ""
    for outside in (
        decode_step(32, 32 * 257),
        extend_step((0, 200), (2000, 3)),
        mixed_step(((0, 8),), 2, 20, 5000),
    ):
        before = model.left_range()
        model.step_ns(outside)
        assert model.left_range() == before
        model.consume(outside, 1)
        assert model.left_range().num_outside == before.num_outside + 1
    assert str(model.left_range()) == (
        "50 % of steps lie outside the profile's range:"
        " decode: rows of a step up to 32, measured up to 16;"
        " decode: decode rows up to 32, measured up to 16;"
        " extend: tokens of a step up to 203, measured up to 100;"
        " extend: longest prefill chunk up to 200, measured up to 64;"
        " extend: cached tokens of a chunk up to 2,000, measured up to 1,000;"
        " mixed: longest prefill chunk from 8, measured from 16;"
        " mixed: mean decode context from 10, measured from 17;"
        " mixed: longest decode context up to 5,000, measured up to 4,097"
    )


@pytest.mark.parametrize("longest", [0, 4_080])
def test_layers_a_run_out_of_the_table_counts_as_its_steps_do(build, longest):
    """Contexts rise through the run; the longest leaves first, or is not known."""
    first = decode_step(3, 3 * 4_070 + 1, longest)
    whole, stepped = build("serving_sim"), build("serving_sim")
    whole.decode_run_ns(first, 60)
    whole.consume(first, 60)
    one = first
    for _ in range(60):
        stepped.step_ns(one)
        stepped.consume(one, 1)
        one = one.next_decode()
    assert whole.left_range() == stepped.left_range()
    assert whole.left_range().num_outside == (33 if not longest else 42)
