"""The module that loads the optional package: no package, unknown names, missing data.

A small stand-in replaces the package, so that these tests run where it is not installed.
"""

import json
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from sim.core.errors import InputError
from sim.extras import how_to_install
from sim.latency.aiconfigurator import package
from sim.latency.aiconfigurator.deployment import ModelDeployment
from sim.latency.aiconfigurator.kv_pool import measured_kv_bytes, memory_for_kv
from sim.latency.aiconfigurator.package import known_models, open_engine
from sim.latency.config import Parallelism
from sim.latency.wrappers import spare_layers_last

LLAMA = ModelDeployment("meta/llama", None, "h200_sxm", "sglang", None, Parallelism())
SOURCE = "aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), h200_sxm, sglang 0.5.14"
FORMATS = SimpleNamespace(__members__={"bfloat16": 1, "fp8": 2})
GIB = 2**30
# What the package supports: its table has these columns.
MATRIX = [
    {"HuggingFaceID": name, "Architecture": "LlamaForCausalLM", "System": system,
     "Backend": backend, "Status": status}
    for name, system, backend, status in (
        ("meta/llama", "h100_sxm", "sglang", "PASS"),
        ("meta/llama", "b200_sxm", "sglang", "PASS"),
        ("meta/llama", "l40s", "vllm", "PASS"),
        ("meta/other", "a100_sxm", "sglang", "FAIL"),
    )
]  # fmt: skip


class Handle:
    """Takes a millisecond for each operator and token; knows no attention in 8 bits."""

    def __init__(self, arguments):
        self._formats = arguments

    def evaluate_context_ops(self, places, *, batch_size, s, prefix=0, x=None):
        if 1 in places and self._formats.get("fmha_quant_mode") == "fp8":
            raise RuntimeError("perf database error: no key\ntable keys without end")
        size = batch_size * s * s if 1 in places else x or batch_size * s
        return [("name", float(size + prefix), 0.0, "silicon")]

    evaluate_generation_ops = evaluate_context_ops


@pytest.fixture
def stand_in(monkeypatch):
    """The modules of the package that are used. Returns what was compiled."""
    compiled = []

    def get_model(path, config, backend):
        if config["tp_size"] == 3:
            raise AssertionError("num_heads 32 should be divisible by tp_size 3 \n")
        weights = {"qkv_gemm": 110 * GIB, "attention": 0, "logits_gemm": 10 * GIB}
        named = [
            SimpleNamespace(_name=name, get_weights=lambda size=size: size)
            for name, size in weights.items()
        ]
        return SimpleNamespace(
            config=SimpleNamespace(gemm_quant_mode=SimpleNamespace(name="bfloat16")),
            context_ops=named,
            generation_ops=named,
            _num_layers=32,
            get_kvcache_bytes_per_sequence=lambda tokens: 1_000 + 100 * tokens,
        )

    def compile_engine(path, system, backend, *, backend_version, **arguments):
        file = Path(path) / "config.json"
        config = json.loads(file.read_text()) if file.exists() else path
        compiled.append((config, system, backend, backend_version, arguments))
        return Handle(arguments)

    def estimate(path, *names, **arguments):
        parts = {"weights": 60, "activations": 5, "runtime_overhead": 3, "comm_overhead": 2}
        parts["gpu_memory_capacity"] = 102
        breakdown = {f"{name}_bytes": size * GIB for name, size in parts.items()}
        return SimpleNamespace(breakdown=breakdown)

    slots = {"current": "0.5.14", "next": "0.5.16"}
    sdk = ModuleType("aiconfigurator_core.sdk")
    sdk.perf_database = SimpleNamespace(
        yaml=yaml,
        get_version_slots=lambda system, backend: (
            slots if system == "h200_sxm" and backend in {"sglang", "vllm"} else None
        ),
        get_supported_databases=lambda: {"h200_sxm": {"sglang": [], "vllm": []}, "l40s": {}},
    )
    kinds = ("GEMMQuantMode", "MoEQuantMode", "FMHAQuantMode", "KVCacheQuantMode")
    sdk.common = ModuleType("aiconfigurator_core.sdk.common")
    sdk.common.DefaultHFModels = {"meta/llama"}
    sdk.common.get_support_matrix = lambda: MATRIX
    for kind in kinds:
        setattr(sdk.common, kind, FORMATS)
    sdk.config_builders = SimpleNamespace(build_model_config=lambda **arguments: arguments)
    sdk.models = SimpleNamespace(get_model=get_model)
    sdk.memory = ModuleType("aiconfigurator_core.sdk.memory")
    sdk.memory.KVCacheEstimator = SimpleNamespace(from_request=estimate)
    sdk.engine = SimpleNamespace(EngineHandle=SimpleNamespace(compile=compile_engine))
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", ModuleType("aiconfigurator_core"))
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", sdk)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.common", sdk.common)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.memory", sdk.memory)
    monkeypatch.setattr(package, "version", lambda name: "0.12.0")
    open_engine.cache_clear()
    yield compiled
    open_engine.cache_clear()


def test_package_absent_is_one_line_that_says_how_to_get_it(monkeypatch):
    """Bad input, with the command that helps; no model is known."""

    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(package, "version", absent)
    open_engine.cache_clear()
    with pytest.raises(InputError) as caught:
        open_engine(LLAMA)
    assert str(caught.value) == (
        "latency: kind aiconfigurator needs the package aiconfigurator-core:"
        f" {how_to_install('aiconfigurator')}"
    )
    assert known_models() == frozenset()


def test_package_source_names_version_licence_and_database(stand_in):
    """By default the newest version that was measured in full is taken."""
    engine = open_engine(LLAMA)
    assert engine.source == SOURCE
    assert (engine.prefill.tokens, engine.prefill.rows, engine.decode.head) == ([0], [1], [2])
    assert known_models() == {"meta/llama"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"system": "h200"}, r"latency.system: .* \(did you mean h200_sxm\? known: h200_sxm,"),
        ({"backend": "vlm"}, r"latency.backend: .* on h200_sxm 'vlm' \(did you mean vllm"),
        ({"version": "0.4"}, r"latency.version: .* known: 0.5.14, 0.5.16\)"),
        (
            {"quantization": (("moe", "fp9"),)},
            r"latency.quantization.moe: unknown number format 'fp9' \(did you mean fp8\?",
        ),
        (
            {"parallelism": Parallelism(tp=3)},
            r"latency: .* 0.5.14: meta/llama: num_heads 32 should be divisible by tp_size 3$",
        ),
    ],
)
def test_package_unknown_name_says_what_exists(stand_in, change, message):
    """System, backend, version, number format; and a model that cannot be split."""
    with pytest.raises(InputError, match=message):
        open_engine(LLAMA._replace(**change))


def test_package_is_given_the_model_and_its_parallelism(stand_in):
    """In its own words; a configuration that it does not have goes as a file."""
    spread = Parallelism(tp=4, dp=2, moe_tp=2, moe_ep=4)
    formats = (("gemm", "fp8"), ("kv_cache", "fp8"))
    config = json.dumps({"model_type": "llama"})
    open_engine(LLAMA._replace(config=config, parallelism=spread, quantization=formats))
    assert stand_in == [
        (
            {"model_type": "llama"}, "h200_sxm", "sglang", "0.5.14",
            {"nextn": 0, "tp_size": 4, "pp_size": 1, "attention_dp_size": 2, "moe_tp_size": 2,
             "moe_ep_size": 4, "gemm_quant_mode": "fp8", "kvcache_quant_mode": "fp8"},
        )
    ]  # fmt: skip


def test_package_without_attention_in_8_bits_takes_16_and_says_so(stand_in):
    """Results can name the substitution."""
    engine = open_engine(LLAMA._replace(quantization=(("attention", "fp8"),)))
    assert engine.source == f"{SOURCE}; for lack of data attention in bfloat16"
    assert [arguments["fmha_quant_mode"] for *_, arguments in stand_in] == ["fp8", "bfloat16"]


def test_package_without_data_is_one_line(stand_in, monkeypatch):
    """Not the package's page of table keys."""
    monkeypatch.setattr(Handle, "evaluate_context_ops", _without_data)
    with pytest.raises(InputError) as caught:
        open_engine(LLAMA)
    assert str(caught.value) == (
        f"latency: {SOURCE}: no data: no key; it has those of meta/llama in its own formats with"
        " sglang on b200_sxm, h100_sxm"
    )


def _without_data(*sizes, **more):
    raise RuntimeError("perf database error: no key\ntable keys without end")


@pytest.mark.parametrize(("backend", "budget_gib"), [("sglang", 30), ("vllm", 22)])
def test_package_pool_is_what_the_engine_leaves_for_it(stand_in, backend, budget_gib):
    """Of 100 GiB, 90 are for weights and KV; vLLM takes activations and its own 8 GiB off, too."""
    sizes = {"max_step_tokens": 8_192, "max_rows": 256, "split_layers": spare_layers_last}
    deployment = LLAMA._replace(backend=backend)
    room = memory_for_kv(deployment, 0.9, **sizes)
    assert room.pool_tokens == (budget_gib * GIB - 256 * 1_000) // 100
    assert (room.weights_bytes, room.reserved_bytes) == (60 * GIB, (30 - budget_gib) * GIB)
    # Two stages with 60 GiB of weights on average: the last one has the head of 10 GiB, and half of
    # the other 110. Each has half of the KV.
    room = memory_for_kv(deployment._replace(parallelism=Parallelism(pp=2)), 0.9, **sizes)
    assert room.weights_bytes == 65 * GIB
    staged = ((budget_gib - 5) * GIB - 128 * 1_000) / 50
    assert room.pool_tokens == pytest.approx(staged, abs=1)


@pytest.mark.usefixtures("stand_in")
def test_package_kv_bytes_are_those_of_all_gpus():
    """1,000 bytes beside 100 for each token, on each GPU."""
    assert measured_kv_bytes(LLAMA) == (100, 1_000, ())
    both = LLAMA._replace(parallelism=Parallelism(tp=2, moe_tp=2))
    assert measured_kv_bytes(both) == (200, 2_000, ())
