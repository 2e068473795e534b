"""Steps composed of a Vidur profile, worked out by hand, and what is refused in one."""

import pytest

from sim.core.errors import InputError
from sim.latency.model import latency_source
from tests.support.latency_steps import decode_step, extend_step, mixed_step

LAYERS = 32


@pytest.fixture
def device_ms(build):
    def ask(step, changes=None, **keys):
        model = build("vidur", changes, **({"num_layers": LAYERS} | keys))
        return model.step_ns(step).device_ns / 1e6

    return ask


def operators_ms(tokens):
    """The embedding once, and for a layer 2 + 3 + ... + 10 microseconds and the second residual."""
    return (0.001 + LAYERS * 0.064) * (1 + (tokens - 1) / 10)


def prefill_ms(chunk, cached):
    return 0.002 + chunk * (1 + cached / 50) / 100


def decode_ms(rows, context):
    return 0.002 + rows * context / 1000


@pytest.mark.parametrize("packed", [False, True])
def test_vidur_decode_step_sums_every_operator(device_ms, packed):
    """3 rows that attend to 50 tokens and their new one."""
    wanted = operators_ms(3) + LAYERS * decode_ms(3, 50)
    assert device_ms(decode_step(3, 3 * 51), packed=packed) == pytest.approx(wanted, abs=1e-6)


def test_vidur_prefill_chunks_have_a_call_each(device_ms):
    """40 tokens without a prefix and 20 after 50: 60 tokens through the other operators."""
    wanted = operators_ms(60) + LAYERS * (prefill_ms(40, 0) + prefill_ms(20, 50))
    assert device_ms(extend_step((0, 40), (50, 20))) == pytest.approx(wanted, abs=1e-6)


def test_vidur_mixed_step_has_prefill_and_decode_apart(device_ms):
    """Two kernels, one pass through everything else."""
    wanted = operators_ms(43) + LAYERS * (prefill_ms(40, 100) + decode_ms(3, 50))
    step = mixed_step(((100, 40),), 3, 3 * 51, 100)
    assert device_ms(step) == pytest.approx(wanted, abs=1e-6)


def test_vidur_long_chunk_grows_with_its_prefix_as_a_shorter_one(device_ms):
    """128 tokens were measured without a prefix only."""
    wanted = operators_ms(128) + LAYERS * prefill_ms(128, 100)
    assert device_ms(extend_step((100, 128))) == pytest.approx(wanted, abs=1e-6)


def test_vidur_degree_picks_its_rows(device_ms):
    """Two devices: half the time in every operator, the saving of keys as before."""
    link = {"all_reduce_latency_s": 0.0, "all_reduce_gb_s": 0.0}
    saving = LAYERS * 0.002
    one = device_ms(decode_step(3, 153)) - saving
    two = device_ms(decode_step(3, 153), tp=2, **link) - saving
    assert two == pytest.approx(one / 2, abs=1e-6)


def test_vidur_layers_come_from_the_scenarios_model(build):
    """Whose hidden size must be that of the table."""
    model = build("vidur", model="llama-3.1-8b")
    assert model.step_ns(decode_step(3, 153)).device_ns == pytest.approx(
        1e6 * (operators_ms(3) + LAYERS * decode_ms(3, 50)), abs=2
    )
    with pytest.raises(
        InputError, match=r"latency.path: has layers of hidden size 4096, .* tiny has 256"
    ):
        build("vidur", model="tiny")
    with pytest.raises(InputError, match=r"latency.num_layers: is required if the scenario"):
        build("vidur")


def test_vidur_split_model_sums_over_the_tables_own_width(build):
    """65 sums of 3 tokens of 4,096: bytes that the link takes at 10 GB/s."""
    keys = {"tp": 2, "num_layers": LAYERS, "all_reduce_latency_s": 0.0}
    free, slow = (
        build("vidur", **keys, all_reduce_gb_s=gb_s).step_ns(decode_step(3, 153)).device_ns
        for gb_s in (0.0, 10.0)
    )
    assert slow - free == pytest.approx(65 * 3 * 4096 * 2 / 10, abs=1)


def test_vidur_names_the_source_of_its_times(build):
    """By its folder: the files do not say what they were measured on."""
    assert latency_source(build("vidur", num_layers=2)) == "Vidur profile vidur (tensor parallel 1)"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("mlp.csv", "time_stats.mlp_act.median", "time_stats.mlp_relu.median",
         "/mlp.csv:1: unknown operator 'mlp_relu' (known: add, attn_post"),
        ("mlp.csv", "time_stats.add.median", "time_stats.add.mode",
         "/mlp.csv:1: time_stats.add.median: there is no such column"),
        ("attention.csv", "attn_prefill.median", "attn_mixed.median",
         "/attention.csv:1: unknown operator 'attn_mixed'"),
        ("attention.csv", "1,16,0,True", "1,16,0,yes",
         "/attention.csv:2: is_prefill: must be True or False, got 'yes'"),
        ("attention.csv", "1,16,0,True", "4,16,0,True",
         "/attention.csv:2: batch_size: must be 1 for a prefill chunk, got 4"),
        ("attention.csv", "True", "False", "/attention.csv: is_prefill: has no row of True"),
    ],
)  # fmt: skip
def test_vidur_spoilt_file_is_named_with_its_line(build, replaced, name, old, new, message):
    """One line: file, line, column, reason."""
    with pytest.raises(InputError) as caught:
        build("vidur", {name: replaced(old, new)}, num_layers=2)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["mlp.csv", "attention.csv"])
def test_vidur_missing_half_is_named(build, name):
    """Published profiles often lack their attention."""
    with pytest.raises(InputError, match=rf"/vidur/{name}: no such file, plain or \.gz"):
        build("vidur", {name: None}, num_layers=2)


def test_vidur_missing_degree_lists_those_there_are(build):
    """Of the file that lacks it."""
    link = {"all_reduce_latency_s": 0.0, "all_reduce_gb_s": 0.0}
    with pytest.raises(
        InputError, match=r"mlp.csv: num_tensor_parallel_workers: has no row of 8 \(known: 1, 2\)"
    ):
        build("vidur", num_layers=2, tp=8, **link)
