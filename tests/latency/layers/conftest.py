"""Small tables in each format, as files that tests change."""

import gzip
from itertools import product

import pytest
from pydantic import TypeAdapter

from sim.latency.architectures.model_key import load_model_shape
from sim.latency.config import LatencyConfig
from sim.latency.kinds.build import ServedBy, build_latency

META = """
model: meta-llama/Llama-3.1-8B
hardware: RTX
vllm_version: 0.19.0
skew_fit:
  enabled: true
  bucket_axes:
    pc: raw pc value (profiled grid point)
    n_bins: [0, 2, 8, 1000000]
    n_labels: [n<=2, n<=8, n>8]
    skew_rate_bins: [-0.01, 0.25, 0.6, 1.01]
    skew_rate_labels: [sr<=25%, sr<=60%, sr>60%]
    kv_big_bins: [0, 1024, 1000000000]
    kv_big_labels: [kvB<=1k, kvB>1k]
    kp_bins: [-1, 0, 1000000000]
    kp_labels: [kp=0, kp>0]
  per_tp:
    1: {alpha_default: 0.25, bucket_table: tp1/skew_fit.csv}
    '2': {alpha_default: 0.5}
"""
# Microseconds of a layer over 1, 10 and 100 tokens.
DENSE = {
    "embedding": (1, 2, 20),
    "layernorm": (3, 3, 12),
    "qkv_proj": (40, 44, 224),
    "rotary_emb": (2, 2, 6),
    "o_proj": (30, 32, 122),
    "gate_up_proj": (100, 110, 560),
    "act_fn": (4, 4, 13),
    "down_proj": (60, 65, 335),
    "final_layernorm": (3, 4, 13),
}
TOKENS = (1, 10, 100)
HEAD = {"lm_head": (500, 520), "sampler": (50, 90)}
ROWS = (1, 16)


def attention_us(chunk, cached, rows, context):
    """Time of a call. It is bilinear, so a table of it is exact between its knots too."""
    return 8 + chunk * (0.5 + cached / 100) + rows * (1 + context / 50)


def csv_text(header, rows):
    return "".join(",".join(map(str, row)) + "\r\n" for row in [header, *rows])


def attention_rows():
    for chunk, rows in product((0, 16, 64), (0, 1, 4, 16)):
        for cached, context in product((0, 100, 1000), (16, 256, 4096)):
            empty = chunk == rows == 0
            off_axis = (not chunk and cached) or (not rows and context != 16)
            if empty or off_axis:
                continue
            call = chunk, cached, rows, context if rows else 0
            yield *call, attention_us(*call)


SERVING_SIM = {
    "meta.yaml": META,
    "tp1/dense.csv": csv_text(
        ("layer", "tokens", "time_us"),
        [
            (name, n, us)
            for name, times in DENSE.items()
            for n, us in zip(TOKENS, times, strict=True)
        ],
    ),
    "tp1/per_sequence.csv": csv_text(
        ("layer", "sequences", "time_us"),
        [(name, n, us) for name, times in HEAD.items() for n, us in zip(ROWS, times, strict=True)],
    ),
    "tp1/attention.csv": csv_text(
        ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"), attention_rows()
    ),
    "tp1/skew_fit.csv": csv_text(
        ("pc", "n_label", "skew_rate_label", "kv_big_label", "kp_label", "alpha", "n_samples"),
        [
            (0, "n<=8", "sr<=25%", "kvB<=1k", "kp=0", 0.1, 4),
            (0, "n<=8", "sr<=60%", "kvB<=1k", "kp=0", 0.2, 4),
            (0, "n<=8", "sr<=60%", "kvB>1k", "kp=0", 0.3, 4),
            (16, "n<=8", "sr<=60%", "kvB<=1k", "kp>0", 0.4, 4),
            (64, "n<=8", "sr<=60%", "kvB<=1k", "kp>0", -0.5, 4),
        ],
    ),
}

OPERATORS = (
    "emb",
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    "post_attention_layernorm",
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
)
KERNELS = ("attn_kv_cache_save", "attn_prefill", "attn_decode")


def statistics(names):
    return [f"time_stats.{name}.{stat}" for name in names for stat in ("min", "median")]


def vidur_mlp():
    """Operator i takes i + 1 microseconds, and a tenth of that for each token after the first."""
    header = (*statistics(OPERATORS), "n_embd", "num_tokens", "num_tensor_parallel_workers")
    rows = []
    for tp, tokens in product((1, 2), (100, 10, 1)):
        times = [(i + 1) * (1 + (tokens - 1) / 10) / 1000 / tp for i in range(len(OPERATORS))]
        rows.append((*[x for time in times for x in (0, time)], 4096, tokens, tp))
    return csv_text(header, rows)


def vidur_attention():
    """Prefill (chunk + cached) / 100 ms, decode rows x context / 1000 ms, 0.002 ms of saving."""
    header = (
        *statistics(KERNELS),
        "num_tensor_parallel_workers",
        "batch_size",
        "prefill_chunk_size",
        "kv_cache_size",
        "is_prefill",
    )
    rows = []
    for tp in (1, 2):
        for chunk, cached in ((16, 0), (16, 100), (64, 0), (64, 100), (128, 0)):
            time = (chunk * (1 + cached / 50)) / 100 / tp
            rows.append((0, 0.002, 0, time, 0, 0, tp, 1, chunk, cached, True))
        for batch, cached in product((8, 1), (1000, 10, 10)):
            time = batch * cached / 1000 / tp
            rows.append((0, 0.002, 0, 0, 0, time, tp, batch, 0, cached, False))
    return csv_text(header, rows)


VIDUR = {"mlp.csv": vidur_mlp(), "attention.csv": vidur_attention()}

SPLITWISE_HEADER = (
    *("model", "hardware", "prompt_size", "batch_size", "token_size"),
    *("prompt_time", "token_time", "e2e_time", "tensor_parallel"),
)


def splitwise_rows(model, hardware, factor, tp):
    points = [(512, 1, 128)] * 3
    points += [(prompt, 1, 128) for prompt in (128, 2048)] * 2
    points += [(512, batch, 128) for batch in (2, 8)] * 2
    points += [(512, 1, 4096)] * 2
    for repeat, (prompt, batch, tokens) in enumerate(points):
        # The median of the repeats is used.
        noise = 1 if repeat == 0 or repeat > 2 else (0.5, 9)[repeat % 2]
        prompt_ms = factor * prompt * batch * (1 if batch == 1 else 1.25) / 10 * noise
        token_ms = factor * (20 + batch + (prompt - 512) / 512) * noise
        token_ms += 99 * (tokens == 4096)
        yield model, hardware, prompt, batch, tokens, prompt_ms, token_ms, 1, tp


SPLITWISE = {
    "perf_model.csv": csv_text(
        SPLITWISE_HEADER,
        [
            *splitwise_rows("llama2-70b", "h100-80gb", 1, 4),
            *splitwise_rows("llama2-70b", "h100-80gb", 0.5, 8),
            *splitwise_rows("llama2-70b", "a100-80gb", 2, 4),
            *splitwise_rows("bloom-176b", "h100-80gb", 3, 8),
        ],
    )
}

TABLES = {"serving_sim": SERVING_SIM, "vidur": VIDUR, "splitwise": SPLITWISE}


def write_tables(folder, texts, *, packed=False):
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if packed and name.endswith(".csv"):
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            path.write_bytes(text.encode())
    return folder


@pytest.fixture
def texts():
    """The files of each format, by name."""
    return TABLES


@pytest.fixture
def replaced():
    """Makes a change for `tables`: replaces a piece of a file's text."""

    def change_of(old, new):
        def change(text):
            assert old in text
            return text.replace(old, new)

        return change

    return change_of


@pytest.fixture
def without():
    """Makes a change for `tables`: removes the rows whose first field is one of these."""

    def change_of(*layers):
        def change(text):
            return "\n".join(row for row in text.splitlines() if row.split(",")[0] not in layers)

        return change

    return change_of


@pytest.fixture
def tables(tmp_path):
    """Writes tables of a format into a folder: `tables("vidur", {"mlp.csv": None})` leaves one out.

    A changed file is given as its text, or as a function of its text.
    """

    def write(kind, changes=None, *, packed=False):
        texts = dict(TABLES[kind])
        for name, change in (changes or {}).items():
            texts[name] = change(texts[name]) if callable(change) else change
        kept = {name: text for name, text in texts.items() if text is not None}
        return write_tables(tmp_path / kind, kept, packed=packed)

    return write


@pytest.fixture
def build(tables, tmp_path):
    """The model of a section over small tables; `changes` as for `tables`, the rest are keys.

    The scheduler does not overlap, unless `overlaps` says so.
    """

    def build_model(kind, changes=None, *, model=None, packed=False, overlaps=False, **keys):
        tables(kind, changes, packed=packed)
        section = {"kind": "layers", "path": kind} | keys
        config = TypeAdapter(LatencyConfig).validate_python(section)
        shape = None if model is None else load_model_shape(model, tmp_path)
        return build_latency(
            config, model=shape, hardware=None, base_dir=tmp_path, server=ServedBy(overlaps)
        )

    return build_model
