"""What is refused in an LLMServingSim profile, with the file and the line."""

import pytest

from sim.core.errors import InputError

ATTENTION, DENSE, SKEW = "tp1/attention.csv", "tp1/dense.csv", "tp1/skew_fit.csv"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (DENSE, "qkv_proj,10,", "q_proj,10,",
         "/tp1/dense.csv:9: layer: unknown layer 'q_proj' (did you mean qkv_proj? known:"),
        (DENSE, "o_proj,100,", "o_proj,many,", "/dense.csv:16: tokens: must be a number, 1 or"),
        (DENSE, "o_proj,100,122", "o_proj,100,x", "/dense.csv:16: time_us: must be a number, 0"),
        ("tp1/per_sequence.csv", "sampler,1,", "softmax,1,",
         "/per_sequence.csv:4: layer: unknown layer 'softmax' (known: lm_head, sampler)"),
        (ATTENTION, "kv_prefill", "kv_cached",
         "/attention.csv:1: kv_prefill: there is no such column"),
        (ATTENTION, "0,0,1,16,", "0,0,0,16,", "/attention.csv:2: n_decode: a call needs a prefill"),
        (SKEW, "n<=8,sr<=25%", "n<=9,sr<=25%", "/skew_fit.csv:2: n_label: 'n<=9' is not a bin of"),
        (SKEW, ",0.1,", ",much,", "/skew_fit.csv:2: alpha: must be a number, got 'much'"),
        ("meta.yaml", "model: meta", "model: [meta", "/meta.yaml:3: not YAML: "),
        ("meta.yaml", "hardware: RTX", "gpu: RTX", "/meta.yaml: hardware: must be text, got null"),
        ("meta.yaml", "n_bins: [0, 2, 8, 1000000]", "n_bins: [0, 2, 8]",
         "/meta.yaml: skew_fit: bucket_axes: n_bins: must be 4 rising numbers, got a list"),
        ("meta.yaml", "[n<=2, n<=8, n>8]", "none",
         "n_labels: must be a list of labels, got the string 'none'"),
        ("meta.yaml", "alpha_default: 0.25, ", "", "per_tp: 1: alpha_default: must be a number"),
        ("meta.yaml", "    1: {", "    4: {", "/meta.yaml: skew_fit: per_tp: 1: must be a mapping"),
        ("meta.yaml", "  bucket_axes:", "  axes:", "skew_fit: bucket_axes: must be a mapping"),
    ],
)  # fmt: skip
def test_serving_sim_spoilt_file_is_named_with_its_line(build, replaced, name, old, new, message):
    """One line: file, line, column or key, reason."""
    with pytest.raises(InputError) as caught:
        build("serving_sim", {name: replaced(old, new)})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (DENSE, "/tp1/dense.csv: no such file, plain or .gz"),
        (ATTENTION, "/tp1/attention.csv: no such file, plain or .gz"),
        ("tp1/per_sequence.csv", "/tp1/per_sequence.csv: no such file, plain or .gz"),
        (SKEW, "/tp1/skew_fit.csv: no such file, plain or .gz"),
    ],
)
def test_serving_sim_missing_file_is_named(build, name, message):
    """Also the alphas, where meta.yaml says that they were fitted."""
    with pytest.raises(InputError) as caught:
        build("serving_sim", {name: None})
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("layer", ["embedding", "layernorm", "qkv_proj", "down_proj", "lm_head"])
def test_serving_sim_missing_layer_is_named(build, without, layer):
    """A sum without it would be too small, and nobody would know."""
    name = "tp1/per_sequence.csv" if layer == "lm_head" else DENSE
    with pytest.raises(InputError, match=rf"{name}: has no rows of layer {layer}$"):
        build("serving_sim", {name: without(layer)})


def test_serving_sim_experts_beside_a_dense_mlp_are_refused(build):
    """Some layers have one, some the other, and no table says which."""
    moe = "tokens,activated_experts,time_us\n1,2,10\n"
    with pytest.raises(InputError, match=r"dense.csv: layer: gate_up_proj is here although"):
        build("serving_sim", {"tp1/moe.csv": moe})


def test_serving_sim_experts_of_shared_devices_alone_are_refused(build, without):
    """The model runs on one device."""
    moe = "ep,tokens,activated_experts,time_us\n2,1,2,10\n"
    dense = without("gate_up_proj", "act_fn", "down_proj")
    with pytest.raises(InputError, match=r"moe.csv: ep: has no row of 1"):
        build("serving_sim", {DENSE: dense, "tp1/moe.csv": moe})


@pytest.mark.parametrize("kind", ["serving_sim", "vidur", "splitwise"])
def test_layers_without_experts_have_no_ranks(build, kind):
    """Ranks of a dense model are servers of their own."""
    with pytest.raises(InputError, match=r"latency.dp: is for tables with experts"):
        build(kind, num_layers=None if kind == "splitwise" else 2, dp=2)


@pytest.mark.parametrize("table", ["attention.csv", "skew_fit.csv"])
def test_serving_sim_kernel_other_than_attention_is_refused(build, table):
    """Tables of sparse models hold several; taken for one another they would be wrong."""

    def with_layer(text):
        header, first, *others = text.splitlines()
        rows = [f"attention,{first}", *(f"indexer,{row}" for row in others)]
        return "\n".join([f"layer,{header}", *rows])

    with pytest.raises(
        InputError, match=rf"{table}:3: layer: unknown layer 'indexer' \(known: attention\)"
    ):
        build("serving_sim", {f"tp1/{table}": with_layer})


@pytest.mark.parametrize(("kept", "what"), [("0,", "prefill chunks"), ("16,", "decode rows")])
def test_serving_sim_attention_needs_prefill_and_decode_alone(build, kept, what):
    """Mixed calls are put together of them where they are missing."""

    def change(text):
        header, *rows = text.splitlines()
        return "\n".join([header, *(row for row in rows if row.startswith(kept))])

    with pytest.raises(InputError, match=rf"attention.csv: has no row with {what} only"):
        build("serving_sim", {ATTENTION: change})


def test_serving_sim_missing_degree_lists_those_there_are(build):
    """meta.yaml may speak of more than was copied."""
    link = {"all_reduce_latency_s": 0.0, "all_reduce_gb_s": 0.0}
    with pytest.raises(InputError, match=r"/tp2: no such folder \(there are: tp1\)"):
        build("serving_sim", tp=2, **link)


def test_serving_sim_folder_of_one_degree_is_not_the_profile(build):
    """The message says which folder to give."""
    with pytest.raises(
        InputError, match=r"is one of the folders tpN .* serving_sim, and latency.tp"
    ):
        build("serving_sim", path="serving_sim/tp1")
