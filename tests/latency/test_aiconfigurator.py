"""Step times composed of operator times, which follow formulas here."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.latency.aiconfigurator.model import KNOTS, AiconfiguratorLatency, ContextCurve
from sim.latency.aiconfigurator.operators import DECODE_PROBE, PREFILL_PROBE, OperatorList
from sim.latency.model import latency_source
from sim.testing.contracts import LatencyModelContract
from tests.support.latency_steps import decode_step, extend_step, mixed_step

# Milliseconds of the formulas: for each new token, each logits row, each query-key pair, each token
# of context.
TOKEN_MS, HEAD_MS, PAIR_MS, CONTEXT_MS = 0.003, 0.0005, 1e-6, 1e-4


def operator_ms(name, num_rows, num_tokens, prefix, x):
    """The time of an operator by a formula, instead of a measurement."""
    match name:
        case "qkv_gemm":
            return 2 / 3 * TOKEN_MS * x
        case "mlp" | "moe":
            return 1 / 3 * TOKEN_MS * x
        case "logits_gemm":
            return HEAD_MS * x
        case "prefill_attention":
            return PAIR_MS * num_rows * num_tokens * (2 * prefix + num_tokens)
        case "decode_attention":
            return 0.02 + CONTEXT_MS * num_rows * num_tokens
    raise AssertionError(name)


class Formulas:
    """Operators whose times follow formulas; `calls` has the rows that attention was asked for."""

    source = "formulas 1.0"
    num_layers = 4

    def __init__(self, *, knows_attention=True, num_ranks=1, left_out=()):
        self._num_ranks = num_ranks
        self._left_out = left_out
        self.calls = {"prefill": [], "decode": []}
        self._knows_attention = knows_attention
        self.prefill = self._list("prefill", PREFILL_PROBE)
        self.decode = self._list("decode", DECODE_PROBE, "logits_gemm")

    def _list(self, phase, probe, *more):
        names = ["qkv_gemm", f"{phase}_attention", "mlp" if self._num_ranks == 1 else "moe", *more]

        def time_ms(places, num_rows, num_tokens, prefix=0, x=0):
            if places == [1] and x == 0:
                if not self._knows_attention:
                    raise InputError("latency: formulas 1.0: no data for attention")
                self.calls[phase].append((num_rows, num_tokens, prefix))
            sizes = num_rows, num_tokens, prefix, x or num_rows * num_tokens
            return sum(operator_ms(names[place], *sizes) for place in places)

        return OperatorList(
            names, time_ms, probe, num_ranks=self._num_ranks, left_out=self._left_out
        )


class TestAiconfiguratorLatency(LatencyModelContract):
    """Composed of formulas."""

    @pytest.fixture
    def make_model(self):
        return lambda: AiconfiguratorLatency(Formulas(), host_s=0.0007, graph_sizes=(2, 4, 64))


def device_ms(step):
    return AiconfiguratorLatency(Formulas()).step_ns(step).device_ns / 1e6


def test_operators_are_sorted_by_what_their_time_depends_on():
    """By asking, not by their names; only the output head is known by its name."""
    operators = Formulas().decode
    assert (operators.tokens, operators.rows, operators.head) == ([0, 2], [1], [3])
    assert Formulas().prefill.head == []


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
    operators = Formulas()
    model = AiconfiguratorLatency(operators)
    operators.calls["prefill"].clear()
    model.step_ns(extend_step((600, 2), (600, 1), (600, 1)))
    assert [(rows, new) for rows, new, _ in operators.calls["prefill"]] == [(3, 1), (3, 2)]


def test_composed_chunk_after_a_long_prefix_reads_its_keys():
    """One new token after 100,000 cached ones costs what decoding it costs, not its pairs."""
    read_ms = 0.02 + CONTEXT_MS * 100_001
    assert read_ms > PAIR_MS * 200_001
    assert device_ms(extend_step((100_000, 1))) == pytest.approx(
        TOKEN_MS + HEAD_MS + read_ms, abs=1e-6
    )


def test_composed_host_time_is_constant():
    """`host_s` is every step's host time."""
    model = AiconfiguratorLatency(Formulas(), host_s=0.002)
    assert model.step_ns(decode_step(1, 5)).host_ns == 2_000_000
    assert model.decode_run_ns(decode_step(1, 5), 3)[1].tolist() == [2_000_000] * 3


def test_composed_model_tells_the_source_of_its_times():
    """Results can name whose measurements they rest on."""
    model = AiconfiguratorLatency(Formulas())
    assert latency_source(model) == "formulas 1.0"


def test_composed_model_without_data_is_refused_when_built():
    """Not in the middle of a simulation."""
    with pytest.raises(InputError, match="no data for attention"):
        AiconfiguratorLatency(Formulas(knows_attention=False))


def test_composed_long_run_asks_for_few_knots():
    """10,000 decode steps from context 1,000 on ask for the knots up to 11,000 tokens alone."""
    operators = Formulas()
    model = AiconfiguratorLatency(operators)
    model.decode_run_ns(decode_step(8, 8_000), 10_000)
    num_asked = len(operators.calls["decode"])
    assert num_asked < 40
    model.decode_run_ns(decode_step(8, 8_000), 10_000)
    assert len(operators.calls["decode"]) == num_asked


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


@given(
    context=st.one_of(st.floats(0.5, 3e6), st.sampled_from(KNOTS.tolist())),
    num_steps=st.integers(1, 100),
)
def test_curve_at_one_context_is_the_same_to_the_bit(context, num_steps):
    """A step takes the same time alone, and in a run on one line of the curve or on several."""
    curve = ContextCurve(lambda tokens: 1e-3 * tokens**1.1)
    contexts = context + np.arange(num_steps)
    assert [curve.at_ms(each) for each in contexts] == curve.time_ms(contexts).tolist()


def test_aiconfigurator_experts_run_on_the_tokens_of_all_ranks():
    """Asked for the tokens that each rank has on average; if all decode, for the largest rank's."""
    model = AiconfiguratorLatency(Formulas(num_ranks=4))

    def ms(num_tokens, largest, *, prefills):
        step = decode_step(6, 600).in_group(num_tokens, largest, prefills=prefills)
        return model.step_ns(step).device_ns / 1e6

    even = ms(24, 6, prefills=False)
    assert even == pytest.approx(device_ms(decode_step(6, 600)))
    per_token_ms = TOKEN_MS / 3
    assert ms(24, 10, prefills=False) - even == pytest.approx(4 * per_token_ms)
    assert ms(105, 99, prefills=True) - even == pytest.approx((27 - 6) * per_token_ms)


def test_aiconfigurator_operator_that_is_left_out_takes_no_time():
    """The products of the MLP are a third of a token's time."""
    with_all, without = (
        AiconfiguratorLatency(Formulas(left_out=names)) for names in ((), ("mlp",))
    )
    step = extend_step((0, 3_000))
    saved_ms = (with_all.step_ns(step).device_ns - without.step_ns(step).device_ns) / 1e6
    assert saved_ms == pytest.approx(3_000 * TOKEN_MS / 3)


def test_aiconfigurator_decode_rows_are_padded_to_a_graph():
    """Three rows run as four: products of four, attention and logits of three; five run as five."""
    plain, padded = (
        AiconfiguratorLatency(Formulas(), graph_sizes=sizes) for sizes in ((), (1, 2, 4))
    )
    for rows, more in ((3, 1), (4, 0), (5, 0)):
        step = decode_step(rows, 100)
        extra_ms = (padded.step_ns(step).device_ns - plain.step_ns(step).device_ns) / 1e6
        assert extra_ms == pytest.approx(more * TOKEN_MS, abs=1e-6)
    mixed = mixed_step(((0, 10),), 3, 100)
    assert padded.step_ns(mixed) == plain.step_ns(mixed)
