"""Step times composed of operator times, which follow formulas here."""

from pathlib import Path

import numpy as np
import pytest

from sim.core.errors import InputError
from sim.latency.aiconfigurator.curve import KNOTS, ContextCurve
from sim.latency.aiconfigurator.model import AiconfiguratorLatency
from sim.latency.aiconfigurator.operators import (
    AllReduceOperator,
    Elementwise,
    EmbeddingLookup,
    MatrixProduct,
)
from sim.latency.model import latency_source
from sim.latency.shape_files import load_model_shape
from sim.testing.contracts import LatencyModelContract
from sim.testing.latency_steps import decode_step, extend_step, mixed_step

TINY = load_model_shape("tiny", Path())
# Times of `tiny` by the formulas, in ms: matrices, norms and activations, embedding; head.
TOKEN_MS = 1e-9 * TINY.num_layer_matrix_parameters + 1e-7 * (8 * 4 * 256 + 4 * 3 * 688) + 1e-6 * 256
HEAD_MS = 1e-9 * TINY.num_head_parameters
PAIR_MS = 1e-9 * 4 * 4 * 64
CONTEXT_MS = 1e-7 * 4 * 2 * 64


class FormulaDatabase:
    """A database whose operator times follow formulas, instead of measurements."""

    source = "formulas 1.0"

    def __init__(self):
        self.prefill_calls = []
        self.num_decode_calls = 0

    def token_timer(self, operators):
        per_token = sum(self._per_token(operator) for operator in operators)
        return lambda num_tokens: per_token * num_tokens

    @staticmethod
    def _per_token(operator):
        match operator:
            case MatrixProduct(_, repeats, width_out, width_in):
                return 1e-9 * repeats * width_out * width_in
            case Elementwise(_, repeats, width_read, width_written):
                return 1e-7 * repeats * (width_read + width_written)
            case EmbeddingLookup(_, _, width):
                return 1e-6 * width
            case AllReduceOperator(_, repeats, width, num_devices):
                return 1e-8 * repeats * width * num_devices
        raise AssertionError(operator)

    def prefill_timer(self, attention):
        weight = 1e-9 * attention.repeats * attention.num_heads * attention.head_dim

        def time_ms(num_rows, num_new, num_cached):
            self.prefill_calls.append((num_rows, num_new, num_cached))
            return weight * num_rows * num_new * (2 * num_cached + num_new)

        return time_ms

    def decode_timer(self, attention):
        weight = 1e-7 * attention.repeats * attention.num_kv_heads * attention.head_dim

        def time_ms(num_rows, num_context):
            self.num_decode_calls += 1
            return 0.02 + weight * num_rows * num_context

        return time_ms


class EmptyDatabase(FormulaDatabase):
    """A database without attention."""

    def prefill_timer(self, attention):
        def time_ms(num_rows, num_new, num_cached):
            raise InputError("latency: formulas 1.0: no data for attention")

        return time_ms


class TestAiconfiguratorLatency(LatencyModelContract):
    """Composed of formulas, on one device and on two."""

    @pytest.fixture(params=[1, 2])
    def make_model(self, request):
        model = load_model_shape("llama-3.1-8b", Path())
        return lambda: AiconfiguratorLatency(
            model, FormulaDatabase(), tp=request.param, host_s=0.0007
        )


def device_ms(step, database=None):
    return AiconfiguratorLatency(TINY, database or FormulaDatabase()).step_ns(step).device_ns / 1e6


def test_composed_decode_step_sums_its_operators():
    """64 rows of mean context 1,000: every token's operators, 64 heads, decode attention."""
    wanted = 64 * (TOKEN_MS + HEAD_MS) + 0.02 + CONTEXT_MS * 64_000
    assert device_ms(decode_step(64, 64_000)) == pytest.approx(wanted, abs=1e-6)


def test_composed_prefill_step_computes_heads_for_rows_only():
    """Two prompts of 3,000 tokens: 6,000 tokens, two heads, the query-key pairs of both."""
    wanted = 6_000 * TOKEN_MS + 2 * HEAD_MS + PAIR_MS * 2 * 3_000**2
    assert device_ms(extend_step((0, 3_000), (0, 3_000))) == pytest.approx(wanted, abs=1e-6)


def test_composed_mixed_step_shares_the_token_operators():
    """A chunk of 2,000 after 4,000 cached tokens beside 30 decode rows: 2,030 tokens at once."""
    step = mixed_step(((4_000, 2_000),), 30, 9_000)
    attention = PAIR_MS * 2_000 * 10_000 + 0.02 + CONTEXT_MS * 9_000
    wanted = 2_030 * TOKEN_MS + 31 * HEAD_MS + attention
    assert device_ms(step) == pytest.approx(wanted, abs=1e-6)


def test_composed_unequal_rows_keep_their_pairs():
    """Rows of 8,000 and 10 tokens cost their own query-key pairs, not those of two of 4,005."""
    wanted = 8_010 * TOKEN_MS + 2 * HEAD_MS + PAIR_MS * (8_000**2 + 10**2)
    assert device_ms(extend_step((0, 8_000), (0, 10))) == pytest.approx(wanted, rel=1e-3)


def test_composed_rows_of_a_fraction_of_a_token_lie_between_whole_ones():
    """Three rows with four new tokens are asked for as rows of one and of two tokens."""
    database = FormulaDatabase()
    model = AiconfiguratorLatency(TINY, database)
    database.prefill_calls.clear()
    model.step_ns(extend_step((600, 2), (600, 1), (600, 1)))
    assert [(rows, new) for rows, new, _ in database.prefill_calls] == [(3, 1), (3, 2)]


def test_composed_chunk_after_a_long_prefix_reads_its_keys():
    """One new token after 100,000 cached ones costs what decoding it costs, not its pairs."""
    read_ms = 0.02 + CONTEXT_MS * 100_001
    assert read_ms > PAIR_MS * 200_001
    assert device_ms(extend_step((100_000, 1))) == pytest.approx(
        TOKEN_MS + HEAD_MS + read_ms, abs=1e-6
    )


def test_composed_host_time_is_constant():
    """`host_s` is every step's host time."""
    model = AiconfiguratorLatency(TINY, FormulaDatabase(), host_s=0.002)
    assert model.step_ns(decode_step(1, 5)).host_ns == 2_000_000
    assert model.decode_run_ns(decode_step(1, 5), 3)[1].tolist() == [2_000_000] * 3


def test_composed_model_tells_the_source_of_its_times():
    """Results can name whose measurements they rest on."""
    model = AiconfiguratorLatency(TINY, FormulaDatabase())
    assert latency_source(model) == "formulas 1.0"


def test_composed_model_without_data_is_refused_when_built():
    """Not in the middle of a simulation."""
    with pytest.raises(InputError, match="no data for attention"):
        AiconfiguratorLatency(TINY, EmptyDatabase())


def test_composed_long_run_asks_for_few_knots():
    """10,000 decode steps from context 1,000 on ask for the knots up to 11,000 tokens alone."""
    database = FormulaDatabase()
    model = AiconfiguratorLatency(TINY, database)
    model.decode_run_ns(decode_step(8, 8_000), 10_000)
    num_asked = database.num_decode_calls
    assert num_asked < 40
    model.decode_run_ns(decode_step(8, 8_000), 10_000)
    assert database.num_decode_calls == num_asked


def test_curve_meets_its_knots_and_is_straight_between():
    """A parabola is exact at knots, within 0.4 % between them, and never falls."""
    curve = ContextCurve(lambda context: float(context) ** 2)
    assert curve.time_ms(KNOTS).tolist() == (KNOTS**2).tolist()
    contexts = np.linspace(1, 2**21, 100_001)
    times = curve.time_ms(contexts)
    assert (np.diff(times) > 0).all()
    far = contexts > 8
    assert np.abs(times[far] / contexts[far] ** 2 - 1).max() < 0.004


def test_curve_goes_on_straight_beyond_its_knots():
    """A line stays that line, below one token and above two million."""
    curve = ContextCurve(lambda context: 2.0 * context + 1.0)
    assert curve.time_ms(np.array([0.5, 5e6])).tolist() == pytest.approx([2.0, 1e7 + 1])
