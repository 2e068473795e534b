"""Steps composed of an LLMServingSim profile, worked out by hand, and what is refused in one."""

import pytest

from sim.core.errors import InputError
from sim.latency.model import latency_source
from tests.support.latency_steps import decode_step, extend_step, mixed_step

# Microseconds for 1, 10 and 100 tokens: all that runs once, and a layer without attention.
ONCE, LAYER = (4, 6, 33), (242, 263, 1284)
# Expert times by tokens and activated experts. There are 8 experts, and a token uses 2.
MOE = "ep,tokens,activated_experts,time_us\n" + "".join(
    f"{ep},{tokens},{experts},{ep * 1000 + tokens + 10 * experts}\n"
    for ep in (1, 2)
    for tokens, experts in ((1, 2), (2, 2), (2, 4), (100, 2), (100, 8))
)


@pytest.fixture
def device_us(build):
    def ask(step, changes=None, **keys):
        return build("serving_sim", changes, **keys).step_ns(step).device_ns / 1000

    return ask


def head_us(rows):
    return 550 + 60 * (rows - 1) / 15


def attention_us(chunk, cached, rows, context):
    return 8 + chunk * (0.5 + cached / 100) + rows * (1 + context / 50)


@pytest.mark.parametrize("packed", [False, True])
def test_serving_sim_decode_step_sums_every_layer(device_us, packed):
    """10 rows of 256 tokens and their new one: 32 layers of Llama-3.1-8B, which meta.yaml names."""
    wanted = 6 + 32 * 263 + head_us(10) + 32 * attention_us(0, 0, 10, 256)
    assert device_us(decode_step(10, 2570), packed=packed) == pytest.approx(wanted, abs=1e-3)


def test_serving_sim_prefill_step_has_a_row_of_logits_for_each_prompt(device_us):
    """40 tokens of one prompt; then 10 of two, the tokens in one pass through the layers."""
    wanted = 6 + 27 / 3 + 32 * (263 + 1021 / 3) + head_us(1) + 32 * attention_us(40, 0, 0, 0)
    assert device_us(extend_step((0, 40))) == pytest.approx(wanted, abs=1e-3)
    wanted = 6 + 32 * 263 + head_us(2) + 32 * attention_us(5, 7, 0, 0)
    assert device_us(extend_step((7, 5), (0, 5))) == pytest.approx(wanted, abs=1e-3)


def test_serving_sim_mixed_step_is_one_call(device_us):
    """16 tokens after 100 beside 4 rows: 20 tokens lie a ninth of the way from 10 to 100."""
    once, layer = 6 + 27 / 9, 263 + 1021 / 9
    wanted = once + 32 * layer + head_us(5) + 32 * attention_us(16, 100, 4, 256)
    step = mixed_step(((100, 16),), 4, 4 * 257)
    assert device_us(step) == pytest.approx(wanted, abs=1e-3)


def test_serving_sim_further_chunks_add_what_they_take_above_a_launch(device_us):
    """The longest goes with the rows; 16 tokens after 100 take 16 more than the shortest call.

    16 tokens without a prefix are that call: they add nothing.
    """
    one = mixed_step(((0, 64),), 4, 4 * 257)
    three = mixed_step(((0, 16), (0, 64), (100, 16)), 4, 4 * 257)
    tokens, rows = 32 * 32 * 1021 / 90 + 32 * 27 / 90, head_us(7) - head_us(5)
    assert device_us(three) - device_us(one) == pytest.approx(32 * 16 + tokens + rows, abs=1e-2)


@pytest.mark.parametrize(
    ("shortest", "alone", "beside"),
    [(0, 0.2, 0.4), (1, 0.2, 0.4), (128, 0.2, 0.4), (129, 0.1, 0.25), (257, 0.1, 0.25)],
)
def test_serving_sim_unequal_contexts_are_corrected_where_asked(device_us, shortest, alone, beside):
    """4 rows of 256 tokens, the longest of 640: the alpha of rate 0.4 up to 1k is 0.2.

    From 128 tokens in the shortest on, and its new one, the rate is a quarter at most;
    beside a prefill chunk the table has no alpha for that. A shortest one that is not known: 0.
    """
    on = {"spread_correction": True}
    longest = 32 * (attention_us(0, 0, 4, 640) - attention_us(0, 0, 4, 256))
    equal = device_us(decode_step(4, 4 * 257), **on)
    skewed = device_us(decode_step(4, 4 * 257, 641, shortest), **on)
    assert skewed - equal == pytest.approx(alone * longest, abs=1e-2)
    equal = device_us(mixed_step(((100, 16),), 4, 4 * 257), **on)
    skewed = device_us(mixed_step(((100, 16),), 4, 4 * 257, 641, shortest), **on)
    assert skewed - equal == pytest.approx(beside * longest, abs=1e-2)


@pytest.mark.parametrize("keys", [{}, {"spread_correction": False}])
def test_serving_sim_mean_context_alone_counts_unless_asked(device_us, keys):
    """The longest and the shortest context change nothing, alone and beside a prefill chunk."""
    for longest, shortest in ((0, 0), (641, 0), (641, 200), (4_000, 1)):
        for step, wanted in (
            (decode_step(4, 4 * 257, longest, shortest), decode_step(4, 4 * 257)),
            (
                mixed_step(((100, 16),), 4, 4 * 257, longest, shortest),
                mixed_step(((100, 16),), 4, 4 * 257),
            ),
        ):
            assert device_us(step, **keys) == device_us(wanted, spread_correction=True)


def test_serving_sim_bin_without_an_alpha_takes_the_default(device_us):
    """One row in sixteen holds the length of all: 0.25, as meta.yaml says."""
    on = {"spread_correction": True}
    equal = device_us(decode_step(16, 16 * 257), **on)
    longest = 32 * (attention_us(0, 0, 16, 640) - attention_us(0, 0, 16, 256))
    skewed = device_us(decode_step(16, 16 * 257, 641), **on)
    assert skewed - equal == pytest.approx(0.25 * longest, abs=1e-2)


def test_serving_sim_profile_without_the_skew_sweep_corrects_nothing(device_us, replaced):
    """It says so in meta.yaml, and has no table of alphas."""
    off = {"meta.yaml": replaced("enabled: true", "enabled: false"), "tp1/skew_fit.csv": None}
    assert device_us(decode_step(4, 4 * 257, 641), off) == device_us(decode_step(4, 4 * 257), off)


@pytest.mark.parametrize(("num_layers", "model"), [(3, None), (4, "tiny"), (32, None)])
def test_serving_sim_number_of_layers(device_us, num_layers, model):
    """The section's own, whatever the scenario's model; else that of the model in meta.yaml."""
    keys = {"model": model} | ({"num_layers": num_layers} if num_layers != 32 else {})
    wanted = 4 + num_layers * (242 + attention_us(0, 0, 1, 99)) + head_us(1)
    assert device_us(decode_step(1, 100), **keys) == pytest.approx(wanted, abs=1e-3)


def test_serving_sim_layers_of_another_model_are_refused(build):
    """They are allowed if the section says how many layers there are."""
    with pytest.raises(
        InputError,
        match=r"latency.path: has layers of meta-llama/Llama-3.1-8B, the scenario's model is tiny",
    ):
        build("serving_sim", model="tiny")
    build("serving_sim", model="llama-3.1-8b")


def test_serving_sim_unknown_model_needs_a_number_of_layers(build, replaced):
    """The model in meta.yaml is not in our table."""
    changes = {"meta.yaml": replaced("meta-llama/Llama-3.1-8B", "org/Secret-7B")}
    with pytest.raises(InputError, match=r"^latency.num_layers: is required if .*org/Secret-7B"):
        build("serving_sim", changes)
    build("serving_sim", changes, num_layers=40)
    build("serving_sim", changes, model="llama-3.1-8b")


def test_serving_sim_norm_of_queries_and_keys_counts_once_a_layer(device_us, without):
    """Layers that only some models have are added if the table has them."""
    more = {"tp1/dense.csv": lambda text: text + "qk_norm,1,5\nqk_norm,100,5\n"}
    step = decode_step(1, 100)
    assert device_us(step, more) - device_us(step) == pytest.approx(32 * 5, abs=1e-3)
    fewer = {"tp1/dense.csv": without("rotary_emb")}
    assert device_us(step) - device_us(step, fewer) == pytest.approx(32 * 2, abs=1e-3)


@pytest.mark.parametrize(("rows", "experts"), [(1, 2), (2, 3.5), (100, 8)])
def test_serving_sim_mixture_of_experts_takes_the_place_of_the_mlp(
    device_us, without, rows, experts
):
    """Two tokens of 2 of 8 experts each are expected at 3.5 of them; a hundred at all.

    Of the table, rows of one device count.
    """
    step = decode_step(rows, 100 * rows)
    moe = {"tp1/dense.csv": without("gate_up_proj", "act_fn", "down_proj"), "tp1/moe.csv": MOE}
    header, *lines = MOE.splitlines()
    no_time = [line[: line.rindex(",")] + ",0" for line in lines]
    free = moe | {"tp1/moe.csv": "\n".join([header, *no_time])}
    took = device_us(step, moe) - device_us(step, free)
    assert took == pytest.approx(32 * (1000 + rows + 10 * experts), abs=1e-2)


@pytest.mark.parametrize(
    ("rows", "group_tokens", "largest", "prefills", "tokens", "experts"),
    [
        (2, 4, 2, False, 4, 8 * (1 - 0.75**4)),
        # Ranks that decode are padded to the largest; others are not.
        (2, 102, 100, False, 200, 8),
        (2, 102, 100, True, 102, 8),
    ],
)
def test_serving_sim_experts_are_spread_over_the_ranks_of_a_group(
    device_us, without, rows, group_tokens, largest, prefills, tokens, experts
):
    """Each of two GPUs has half of the experts, and half of what all ranks' tokens choose."""
    step = decode_step(rows, 100 * rows).in_group(group_tokens, largest, prefills=prefills)
    moe = {"tp1/dense.csv": without("gate_up_proj", "act_fn", "down_proj"), "tp1/moe.csv": MOE}
    header, *lines = MOE.splitlines()
    no_time = [line[: line.rindex(",")] + ",0" for line in lines]
    free = moe | {"tp1/moe.csv": "\n".join([header, *no_time])}
    link = {"dp": 2, "all_reduce_latency_s": 1e-5, "all_reduce_gb_s": 0.0}
    took = device_us(step, moe, **link) - device_us(step, free)
    # A gather before and a scatter after the experts of each layer have the latency each.
    assert took == pytest.approx(32 * (1000 + tokens / 2 + 10 * experts / 2 + 20), abs=1e-2)


def test_serving_sim_newer_attention_table_looks_all_chunks_up_at_once(device_us):
    """Its calls hold several chunks: 20 tokens that look back at 11 on average, beside 4 rows.

    Rows of speculative decoding, with several new tokens a row, are passed over.
    """

    def us(chunk, key, rows, context):
        return 8 + chunk * key / 20 + rows * (1 + context / 50)

    lines = ["layer,prefill_chunk,prefill_key,n_decode,kv_decode,decode_q_len,time_us"]
    for q in (1, 4):
        for chunk, rows in ((0, 1), (0, 16), (16, 0), (64, 0), (16, 1), (16, 16), (64, 16)):
            for key in (8, 64) if chunk else (0,):
                for context in (16, 512) if rows else (0,):
                    time = q * us(chunk, key, rows, context)
                    lines.append(f"attention,{chunk},{key}.0,{rows},{context},{q},{time}")
    changes = {"tp1/attention.csv": "\n".join(lines)}
    step = mixed_step(((10, 10), (2, 10)), 4, 4 * 257)
    once, layer = 6 + 27 * 14 / 90, 263 + 1021 * 14 / 90
    wanted = once + 32 * layer + head_us(6) + 32 * us(20, 11, 4, 256)
    assert device_us(step, changes) == pytest.approx(wanted, abs=1e-3)


def test_serving_sim_split_model_reads_its_own_tables_and_adds_its_sums(build, texts):
    """2 x 32 + 1 sums of 4 tokens, 4,096 wide, 16 bits: half of the bytes go out, half come in."""
    both = {name.replace("tp1", "tp2"): text for name, text in texts["serving_sim"].items()}
    link = {"all_reduce_latency_s": 1e-5, "all_reduce_gb_s": 50.0}
    one = build("serving_sim", both).step_ns(decode_step(4, 400))
    two = build("serving_sim", both, tp=2, **link).step_ns(decode_step(4, 400))
    sums_ns = 65 * (10_000 + 4 * 4096 * 2 / 50)
    assert two.device_ns - one.device_ns == pytest.approx(sums_ns, abs=1)
    free = build("serving_sim", both, tp=2, all_reduce_latency_s=0.0, all_reduce_gb_s=0.0)
    assert free.step_ns(decode_step(4, 400)) == one


def test_serving_sim_names_the_source_of_its_times(build):
    """Device, model and engine, for readers of results."""
    assert latency_source(build("serving_sim")) == (
        "LLMServingSim profile of meta-llama/Llama-3.1-8B on RTX (vLLM 0.19.0, tensor parallel 1)"
    )


def test_serving_sim_changed_tables_are_read_anew(device_us, replaced):
    """Tables are cached for other replicas, but not when a file has changed."""
    step = decode_step(1, 100)
    before = device_us(step)
    assert device_us(step, {"tp1/dense.csv": replaced("qkv_proj,1,40", "qkv_proj,1,50")}) == (
        pytest.approx(before + 320, abs=1e-3)
    )
