"""The step times that a profile predicts, computed by hand."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.features import StepFeatures
from sim.latency.profile.format import read_profile
from sim.latency.profile.model import ProfileLatency

same_data_for_all = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def extend_step(tokens, cached=0, rows=1):
    attention = tokens * (2 * cached + tokens)
    context = tokens + cached
    return StepFeatures(ForwardMode.EXTEND, tokens, attention, rows, 0, 0, context)


def decode_step(rows, context):
    return StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, context, context)


def mixed_step(tokens, cached, rows, context):
    step = extend_step(tokens, cached)
    step.mode = ForwardMode.MIXED
    step.num_decode_rows = rows
    step.num_decode_context_tokens = context
    step.num_context_tokens += context
    return step


@pytest.fixture
def model_of(write):
    """The model of a profile's data."""

    def build(data, *, overlaps=True):
        return ProfileLatency(read_profile(write(data)), overlaps=overlaps)

    return build


def set_terms(data, mode, **ns):
    data["modes"][mode]["terms"] = [{"term": name, "ns": value} for name, value in ns.items()]


def test_profile_decode_time_is_the_sum_of_its_terms(flat, model_of):
    """Constant 100 + 3 x 10 rows + 2 x 500 tokens of context, and no graph: 10 padded rows."""
    set_terms(flat, "decode", constant=100, decode_rows=3, decode_context=2, padded_rows=7)
    assert model_of(flat).step_ns(decode_step(10, 500)).device_ns == 100 + 30 + 1_000 + 70


@pytest.mark.parametrize(
    ("rows", "padded", "eager"), [(1, 1, 0), (3, 4, 0), (9, 64, 0), (64, 64, 0), (65, 65, 1)]
)
def test_profile_decode_rows_are_padded_to_graphs(profile_data, model_of, rows, padded, eager):
    """To the smallest graph that takes them; above the largest one they run eagerly, unpadded."""
    profile_data["modes"]["decode"]["correction"] = None
    set_terms(profile_data, "decode", padded_rows=1_000, eager=7)
    device_ns = model_of(profile_data).step_ns(decode_step(rows, rows)).device_ns
    assert device_ns == 1_000 * padded + 7 * eager


def test_profile_extend_time_counts_pairs_rows_and_cached_tokens(flat, model_of):
    """Tokens, rows, cached tokens read, and query-key pairs: 100 x (50 + 100 / 2)."""
    set_terms(flat, "extend", tokens=3, attention=1, prefill_rows=7, cached_tokens=2)
    step = extend_step(100, 50, rows=2)
    assert model_of(flat).step_ns(step).device_ns == 300 + 100 * 100 + 14 + 100


def test_profile_knee_counts_only_what_lies_above_it(flat, model_of):
    """Nothing up to the knee, then every unit."""
    flat["modes"]["extend"]["terms"] = [
        {"term": "constant", "ns": 50},
        {"term": "tokens", "knee": 184.0, "ns": 10},
    ]
    model = model_of(flat)
    times = [model.step_ns(extend_step(tokens)).device_ns for tokens in (100, 184, 185, 284)]
    assert times == [50, 50, 60, 1_050]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_profile_correction_is_linear_between_two_knots(profile_data, model_of, share):
    """Between contexts of 1,000 and 8,192 at 8 rows the factor goes from 1 to 1.07, linearly."""
    set_terms(profile_data, "decode", constant=1e9)
    context = 8 * round(1_000 + share * 7_192)
    device_ns = model_of(profile_data).step_ns(decode_step(8, context)).device_ns
    assert device_ns == pytest.approx(1e9 * (1 + share * 0.07), abs=1)


def test_profile_correction_is_linear_along_the_other_axis_too(profile_data, model_of):
    """Tokens half way from 128 to 8,192, cached half way from 0 to 1,000: the mean of four."""
    set_terms(profile_data, "extend", constant=1e9)
    device_ns = model_of(profile_data).step_ns(extend_step(4_160, 500)).device_ns
    assert device_ns == pytest.approx(1e9 * (0.9 + 1.0 + 1.0 + 0.97) / 4, abs=1)


def test_profile_correction_is_held_beyond_its_edges(profile_data, model_of):
    """Beyond the grid the factor is that of its nearest edge."""
    set_terms(profile_data, "decode", constant=1e9)
    model = model_of(profile_data)

    def factor(rows, mean):
        return model.step_ns(decode_step(rows, rows * mean)).device_ns / 1e9

    assert factor(1, 2) == factor(1, 16) == 1.0
    assert factor(8, 50_000) == factor(8, 8_192) == 1.07
    assert factor(1_000, 50_000) == factor(256, 8_192) == pytest.approx(1 / 3)


def test_profile_host_time_is_that_of_the_way_of_scheduling(flat, model_of):
    """Overlap has its own times, and borrows those of mixed steps from normal scheduling."""
    decode, mixed = decode_step(3, 700), mixed_step(20, 0, 3, 700)
    assert model_of(flat).step_ns(decode).host_ns == 50_000 + 400 + 10
    assert model_of(flat).step_ns(mixed).host_ns == 90_000
    assert model_of(flat, overlaps=False).step_ns(decode).host_ns == 90_000


def test_profile_measured_host_times_go_before_those_put_together(flat, model_of):
    """What a profile's points say of the host is used only for want of a run."""
    flat["host"][1]["scheduling"] = "not measured"
    assert model_of(flat).step_ns(decode_step(3, 700)).host_ns == 90_000
    del flat["host"][0]["modes"]["decode"]
    assert model_of(flat).step_ns(decode_step(3, 700)).host_ns == 50_410


def test_profile_launch_time_is_that_of_steps_without_a_graph(profile_data, model_of):
    """Up to 64 rows a graph takes decode steps; eager ones are launched as extend steps are."""
    model = model_of(profile_data)
    assert model.launch_ns(extend_step(500, rows=3)) == 20_030_000
    assert model.launch_ns(mixed_step(20, 0, 3, 700)) == 30_000_030
    assert model.launch_ns(decode_step(64, 700)) == 0
    assert model.launch_ns(decode_step(65, 700)) == 20_000_000
    del profile_data["launch"]["extend"]
    assert model_of(profile_data).launch_ns(extend_step(500)) == 30_000_000
    profile_data["launch"] = {}
    assert model_of(profile_data).launch_ns(extend_step(500)) == 0


def test_profile_mixed_steps_are_put_together_where_none_was_measured(flat, model_of):
    """Decode rows count as prefill tokens, their context costs what it costs in a decode step."""
    del flat["modes"]["mixed"]
    for host in flat["host"]:
        host["modes"].pop("mixed", None)
    set_terms(flat, "extend", constant=1_000, tokens=10, cached_tokens=2)
    set_terms(flat, "decode", constant=500, decode_rows=1, decode_context=3)
    step = mixed_step(100, 30, 8, 4_000)
    assert model_of(flat).step_ns(step) == (1_000 + 10 * 108 + 2 * 30 + 3 * 4_000, 70_010)


@pytest.mark.parametrize(
    ("absent", "step"),
    [
        ("decode", decode_step(1, 10)),
        ("extend", extend_step(10)),
        ("extend", mixed_step(10, 0, 1, 10)),
    ],
)
def test_profile_absent_mode_is_refused_when_it_is_needed(flat, model_of, absent, step):
    """The message names the mode and what there is."""
    del flat["modes"][absent]
    if step.mode is ForwardMode.MIXED:
        del flat["modes"]["mixed"]
    mode = step.mode.name.lower()
    with pytest.raises(InputError, match=rf"profile example: has no times of {mode} steps"):
        model_of(flat).step_ns(step)


ROWS, CONTEXTS = st.integers(1, 5_000), st.integers(1, 200_000)
TOKENS, CACHED = st.integers(1, 200_000), st.integers(0, 200_000)


@same_data_for_all
@given(rows=ROWS, context=CONTEXTS, tokens=TOKENS, cached=CACHED, more=st.integers(0, 10_000))
def test_profile_flat_times_never_fall_as_a_step_grows(
    flat, write, rows, context, tokens, cached, more
):
    """Coefficients are not negative: more rows, context, tokens or prefix never cost less.

    With a table they may, as a device's times do; with graphs, only where eager steps begin.
    """
    model = ProfileLatency(read_profile(write(flat)))

    def device_ns(step):
        return model.step_ns(step).device_ns

    total = rows * context
    assert device_ns(decode_step(rows + more, total)) >= device_ns(decode_step(rows, total))
    assert device_ns(decode_step(rows, total + more)) >= device_ns(decode_step(rows, total))
    for step in (extend_step, lambda t, c: mixed_step(t, c, rows, total)):
        assert device_ns(step(tokens + more, cached)) >= device_ns(step(tokens, cached))
        assert device_ns(step(tokens, cached + more)) >= device_ns(step(tokens, cached))


@same_data_for_all
@given(rows=ROWS, context=CONTEXTS, tokens=TOKENS, cached=CACHED)
def test_profile_times_are_finite_and_positive_far_and_wide(
    profile_data, write, rows, context, tokens, cached
):
    """Also far outside of what was measured."""
    model = ProfileLatency(read_profile(write(profile_data)))
    for step in (
        decode_step(rows, rows * context),
        extend_step(tokens, cached),
        mixed_step(tokens, cached, rows, rows * context),
    ):
        device_ns, host_ns = model.step_ns(step)
        assert device_ns >= 1
        assert host_ns >= 0
        assert math.isfinite(device_ns)


def test_profile_prefill_rows_of_one_token_are_decode_rows_of_a_graph(flat, model_of):
    """Two cached prompts of 40 and 60 tokens beside three decode rows: five rows, one graph."""
    flat["graph_sizes"] = [8]
    set_terms(flat, "decode", constant=100, decode_rows=3, decode_context=2, padded_rows=7)
    model = model_of(flat)
    step = StepFeatures(ForwardMode.MIXED, 2, 2 * 100 - 2, 2, 3, 90, 190)
    assert model.step_ns(step) == model.step_ns(decode_step(5, 190))
    assert model.step_ns(step).device_ns == 100 + 15 + 380 + 56
    assert model.launch_ns(step) == 0
    flat["graph_sizes"] = []
    assert model_of(flat).step_ns(step) != model_of(flat).step_ns(decode_step(5, 190))
