"""Steps of whole models from Splitwise's table: at its points, and between them."""

import pytest

from sim.core.errors import InputError
from sim.latency.model import latency_source
from tests.support.latency_steps import decode_step, extend_step, mixed_step

H100 = {"table_model": "llama2-70b", "table_hardware": "h100-80gb", "tp": 4}


@pytest.fixture
def device_ms(build):
    def ask(step, changes=None, **keys):
        return build("splitwise", changes, **(H100 | keys)).step_ns(step).device_ns / 1e6

    return ask


@pytest.mark.parametrize("packed", [False, True])
def test_splitwise_points_of_its_sweeps_come_out_as_measured(device_ms, packed):
    """Single prompts, several prompts of 512, rows at 576 tokens, one row at other contexts.

    Of five repeats the middle one counts, and rows that generated many tokens do not.
    """
    for prompt in (128, 512, 2048):
        assert device_ms(extend_step((0, prompt)), packed=packed) == pytest.approx(prompt / 10)
    for batch in (2, 8):
        prompts = extend_step(*[(0, 512)] * batch)
        assert device_ms(prompts) == pytest.approx(1.25 * 512 * batch / 10)
    for rows in (1, 2, 8):
        assert device_ms(decode_step(rows, rows * 576)) == pytest.approx(20 + rows)
    for prompt in (128, 2048):
        context = prompt + 64
        assert device_ms(decode_step(1, context)) == pytest.approx(21 + (prompt - 512) / 512)


def test_splitwise_is_linear_between_its_points(device_ms):
    """Rows and prompt tokens; and prompts of 768 lie a half from 512 towards one of 1,024."""
    assert device_ms(decode_step(5, 5 * 576)) == pytest.approx(25)
    assert device_ms(extend_step((0, 1280))) == pytest.approx(128)
    batch, single = 1.25 * 1536 / 10, 1536 / 10
    share = (768 - 512) / (1536 - 512)
    wanted = batch + share * (single - batch)
    assert device_ms(extend_step((0, 768), (0, 768))) == pytest.approx(wanted)


def test_splitwise_short_prompts_go_by_the_tokens_of_all(device_ms):
    """Four of 64 take what one of 256 does; twenty of 64 what 2.5 of 512 do."""
    assert device_ms(extend_step(*[(0, 64)] * 4)) == pytest.approx(25.6)
    assert device_ms(extend_step(*[(0, 64)] * 20)) == pytest.approx(1.25 * 128)


def test_splitwise_further_context_costs_every_row(device_ms):
    """8 rows of 1,024 tokens more than in the sweep: 2 ms for each."""
    assert device_ms(decode_step(8, 8 * 1600)) == pytest.approx(28 + 8 * 2)


def test_splitwise_mixed_step_is_prompts_and_then_tokens(device_ms):
    """The engine of the table never mixed them."""
    step = mixed_step(((0, 512),), 8, 8 * 576)
    assert device_ms(step) == pytest.approx(51.2 + 28)


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"tp": 8}, 0.5),
        ({"table_hardware": "a100-80gb"}, 2),
        ({"table_model": "bloom-176b", "tp": 8}, 3),
        ({"table_model": "bloom-176b", "table_hardware": None, "tp": 8}, 3),
    ],
)
def test_splitwise_takes_the_rows_that_were_asked_for(device_ms, keys, factor):
    """By model, hardware and degree; what a model was measured on once need not be named."""
    assert device_ms(extend_step((0, 512)), **keys) == pytest.approx(factor * 51.2)


def test_splitwise_table_may_be_named_itself(device_ms, tables):
    """A folder that holds it, or the file under any name."""
    step = extend_step((0, 512))
    assert device_ms(step, path="splitwise/perf_model.csv") == device_ms(step)


def test_splitwise_names_the_source_of_its_times(build):
    """Model, device and degree."""
    assert latency_source(build("splitwise", **H100)) == (
        "Splitwise table, llama2-70b on h100-80gb, tensor parallel 4"
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"table_model": None},
         "latency.table_model: is required: .*perf_model.csv has bloom-176b, llama2-70b"),
        ({"table_hardware": None},
         "latency.table_hardware: is required: .*perf_model.csv has a100-80gb, h100-80gb"),
        ({"table_model": "llama-70b"},
         "latency.table_model: unknown model 'llama-70b' \\(did you mean llama2-70b\\? known: bl"),
        ({"table_model": "bloom-176b", "table_hardware": "a100-80gb"},
         "latency.table_hardware: unknown hardware 'a100-80gb' \\(did you mean h100-80gb"),
        ({"tp": 1}, "latency.tp: must be one of 4, 8, the degrees in .*perf_model.csv, got 1"),
        ({"num_layers": 80}, "latency.num_layers: belongs to tables of layers; this one has whole"),
        ({"all_reduce_gb_s": 1.0}, "latency.all_reduce_gb_s: belongs to tables of layers"),
    ],
)  # fmt: skip
def test_splitwise_wrong_keys_are_answered_with_what_there_is(build, keys, message):
    """One line, with the names that the table knows."""
    with pytest.raises(InputError, match=message):
        build("splitwise", **(H100 | keys))


def test_splitwise_table_without_its_base_point_is_refused(build):
    """Nothing could be said of single prompts."""

    def change(text):
        return "\n".join(row for row in text.splitlines() if ",1,128," not in row)

    with pytest.raises(InputError, match=r"tensor parallel 4: has no single prompt of 512 tokens"):
        build("splitwise", {"perf_model.csv": change}, **H100)


def test_splitwise_spoilt_file_is_named_with_its_line(build, replaced):
    """One line: file, line, column, reason."""
    change = {"perf_model.csv": replaced("h100-80gb,512,1,128,51.2", "h100-80gb,512,1,128,fast")}
    with pytest.raises(InputError, match=r"perf_model.csv:2: prompt_time: must be a number, 0 or"):
        build("splitwise", change, **H100)
