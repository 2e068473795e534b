"""The module that loads the optional package: no package, unknown names, missing data.

A small stand-in replaces the package, so that these tests run where it is not installed.
"""

import sys
from importlib.metadata import PackageNotFoundError
from types import ModuleType, SimpleNamespace

import pytest

from sim.core.errors import InputError
from sim.latency.aiconfigurator import package
from sim.latency.aiconfigurator.operators import (
    AllReduceOperator,
    AttentionOperator,
    Elementwise,
    EmbeddingLookup,
    MatrixProduct,
)
from sim.latency.aiconfigurator.package import open_database

VERSIONS = {"current": "0.5.14", "next": "0.5.16"}
BF16 = SimpleNamespace(bfloat16="bf16")


def operator(kind):
    return lambda *sizes, **more: SimpleNamespace(
        sent=[kind, *sizes, more], _lane_order=["default"]
    )


class Handle:
    """Takes a millisecond for each operator and token, and knows heads of width 64 and 128."""

    @classmethod
    def for_database(cls, database):
        assert database == ("h200_sxm", "sglang", "0.5.14")
        return cls()

    def evaluate_ops_json(self, wire, *, is_context, batch_size, s, prefix=0, x=None):
        times = []
        for sent in wire:
            if sent.sent[-1].get("head_size", 64) not in {64, 128}:
                raise RuntimeError("perf database error:\ntable keys without end")
            times.append(("name", float(batch_size * (x or s) + prefix), 0.0, "silicon"))
        return times


@pytest.fixture
def stand_in(monkeypatch):
    """The modules of the package that are used. Returns the arguments of the last call."""
    kinds = ("GEMM", "ElementWise", "Embedding", "CustomAllReduce")
    operations = SimpleNamespace(
        **{kind: operator(kind) for kind in (*kinds, "ContextAttention", "GenerationAttention")}
    )
    wires = []
    sdk = ModuleType("aiconfigurator_core.sdk")
    sdk.perf_database = SimpleNamespace(
        get_version_slots=lambda system, backend: (
            VERSIONS if (system, backend) == ("h200_sxm", "sglang") else None
        ),
        get_supported_databases=lambda: {"h200_sxm": {"sglang": [], "vllm": []}, "l40s": {}},
        get_database=lambda *names: None if names[2] == "0.5.16" else names,
    )
    sdk.engine = SimpleNamespace(
        EngineHandle=Handle, build_ops_json=lambda sent: wires.append(sent) or sent
    )
    sdk.common = SimpleNamespace(GEMMQuantMode=BF16, KVCacheQuantMode=BF16, FMHAQuantMode=BF16)
    sdk.operations = operations
    attention = SimpleNamespace(resolved_lane_order_for_op=lambda database, table: [table])
    modules = {
        "aiconfigurator_core": ModuleType("aiconfigurator_core"),
        "aiconfigurator_core.sdk": sdk,
        "aiconfigurator_core.sdk.operations": operations,
        "aiconfigurator_core.sdk.operations.attention": attention,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(package, "version", lambda name: "0.12.0")
    open_database.cache_clear()
    yield wires
    open_database.cache_clear()


def test_package_absent_is_one_line_that_says_how_to_get_it(monkeypatch):
    """Bad input, with the command that helps."""

    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(package, "version", absent)
    open_database.cache_clear()
    with pytest.raises(InputError) as caught:
        open_database("h200_sxm", "sglang", None)
    assert str(caught.value) == (
        "latency: kind aiconfigurator needs the package aiconfigurator-core"
        " (pip install 'servetwin[aiconfigurator]')"
    )


def test_package_source_names_version_licence_and_database(stand_in):
    """The source names them; by default the newest complete version is taken."""
    assert open_database("h200_sxm", "sglang", None).source == (
        "aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), h200_sxm, sglang 0.5.14"
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("h200", "sglang", None),
            r"latency.system: .* \(did you mean h200_sxm\? known: h200_sxm,",
        ),
        (("h200_sxm", "vlm", None), r"latency.backend: .* on h200_sxm 'vlm' \(did you mean vllm"),
        (("h200_sxm", "sglang", "0.4"), r"latency.version: .* known: 0.5.14, 0.5.16\)"),
        (("h200_sxm", "sglang", "0.5.16"), r"latency.version: .*: cannot load 0.5.16"),
    ],
)
def test_package_unknown_database_says_what_exists(stand_in, names, message):
    """System, backend and version, each with the names there are."""
    with pytest.raises(InputError, match=message):
        open_database(*names)


def test_package_operators_go_in_its_own_form(stand_in):
    """Sizes in the package's order, bf16, and all of them added up."""
    timer = open_database("h200_sxm", "sglang", None).token_timer(
        (
            MatrixProduct("p", 2, 30, 40),
            Elementwise("e", 3, 50, 60),
            EmbeddingLookup("l", 1_000, 70),
            AllReduceOperator("a", 4, 80, 2),
        )
    )
    assert [sent.sent for sent in stand_in[-1]] == [
        ["GEMM", "p", 2, 30, 40, "bf16", {}],
        ["ElementWise", "e", 3, 50, 60, {}],
        ["Embedding", "l", 1, 1_000, 70, {}],
        ["CustomAllReduce", "a", 4, 80, 2, {}],
    ]
    assert timer(7) == 4 * 7.0


def test_package_attention_uses_the_backends_kernels(stand_in):
    """Each phase asks with the order of kernels of its own table."""
    database, attention = (
        open_database("h200_sxm", "sglang", None),
        AttentionOperator(32, 16, 8, 128),
    )
    assert database.prefill_timer(attention)(3, 10, 5) == 35.0
    assert stand_in[-1][0].sent[:5] == ["ContextAttention", "attention", 32, 16, 8]
    assert stand_in[-1][0]._lane_order == ["_context_attention_data"]
    assert database.decode_timer(attention)(3, 10) == 30.0
    assert stand_in[-1][0].sent[:5] == ["GenerationAttention", "attention", 32, 16, 8]
    assert stand_in[-1][0]._lane_order == ["_generation_attention_data"]


def test_package_without_data_says_which_widths_it_has(stand_in):
    """One line, not the package's page of table keys."""
    timer = open_database("h200_sxm", "sglang", None).decode_timer(AttentionOperator(4, 7, 7, 96))
    with pytest.raises(InputError) as caught:
        timer(1, 1)
    assert str(caught.value) == (
        "latency: aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), h200_sxm, sglang 0.5.14: no data"
        " for attention of 7 query and 7 KV heads of width 96; it has heads of width 64, 128"
    )
