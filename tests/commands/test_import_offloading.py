"""KV in CPU memory, as launch commands of vLLM ask for it."""

import json

import pytest

from tests.commands.test_import_command import CLIENT, paste

__all__ = ["paste"]

_BYTES = '{"cpu_bytes_to_use": 8589934592, "blocks_per_chunk": 4}'


@pytest.mark.parametrize(
    ("flags", "keys", "note"),
    [
        ("--kv-offloading-size 40", {"kv_offloading_size": 40}, ""),
        (
            (
                "--kv-offloading-size 40 --kv-transfer-config"
                """ '{"kv_connector_extra_config": {"eviction_policy": "arc"}}'"""
            ),
            {"kv_offloading_size": 40, "kv_offloading": {"eviction_policy": "arc"}},
            "",
        ),
        (
            (
                """--kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role":"""
                f""" "kv_both", "kv_connector_extra_config": {_BYTES}}}'"""
            ),
            {"kv_offloading_size": 8.0, "kv_offloading": {"blocks_per_chunk": 4}},
            "",
        ),
        (
            "--kv-offloading-size 40 --kv-offloading-backend lmcache",
            {},
            "--kv-offloading-backend lmcache: not simulated",
        ),
    ],
)
def test_kv_of_a_server_in_its_cpu_memory(paste, flags, keys, note):
    code, data, err = paste(CLIENT, f"vllm serve Qwen/Qwen3-8B {flags}")
    assert code == 0
    found = {key: value for key, value in data["scheduler"].items() if "offloading" in key}
    assert found == keys
    assert note in err


_DROPS = "vllm.v1.kv_offload.tiering.backpressure.DropStorePolicy"
_DETECTOR = "vllm.v1.kv_offload.tiering.backpressure.EMABackpressureDetector"


@pytest.mark.parametrize(
    ("tiers", "common", "found", "note"),
    [
        (
            [{"type": "fs", "root_dir": "/kv", "n_read_threads": 32}],
            {"backpressure_cls": _DETECTOR, "alpha": 0.5},
            [{"type": "fs", "n_read_threads": 32, "backpressure": {"alpha": 0.5}}],
            "how fast the storage is",
        ),
        (
            [{"type": "obj", "store_config": {}, "backpressure": {"policy_cls": _DROPS}}],
            None,
            [{"type": "obj", "backpressure": {"policy": "drop"}}],
            "how fast the storage is",
        ),
        ([{"type": "p2p"}], None, None, "secondary_tiers: type p2p: not simulated"),
        (
            [{"type": "fs"}, {"type": "obj"}],
            None,
            [{"type": "fs"}, {"type": "obj", "store": "nvme"}],
            "further secondary_tiers: say how fast they are",
        ),
    ],
)
def test_tier_below_the_cpu_memory_of_a_server(paste, tiers, common, found, note):
    extra = {"spec_name": "TieringOffloadingSpec", "secondary_tiers": tiers}
    extra |= {} if common is None else {"backpressure": common}
    config = json.dumps({"kv_connector_extra_config": extra})
    flags = f"--kv-offloading-size 40 --kv-transfer-config '{config}'"
    code, data, err = paste(CLIENT, f"vllm serve Qwen/Qwen3-8B {flags}")
    assert code == 0
    keys = data["scheduler"].get("kv_offloading", {})
    assert (keys.get("secondary_tiers"), data.get("store")) == (found, found and "nvme")
    assert note in err


@pytest.mark.parametrize(
    ("version", "found", "note"),
    [
        ("0.19.0", {"kv_offloading_size": 40, "kv_offloading": {"blocks_per_chunk": 3}}, ""),
        ("0.14.0", {}, "--kv-offloading-size: not simulated with the other flags"),
    ],
)
def test_kv_of_an_older_server_in_its_cpu_memory(paste, version, found, note):
    """Before 0.33.0 the connector is told the tokens of a chunk, and not its blocks."""
    config = json.dumps({"kv_connector_extra_config": {"block_size": 96}})
    flags = f"--block-size 32 --kv-offloading-size 40 --kv-transfer-config '{config}'"
    server = f"docker run vllm/vllm-openai:v{version} --model Qwen/Qwen3-8B {flags}"
    code, data, err = paste(CLIENT, server)
    assert (code, data["scheduler"]["version"]) == (0, version)
    keys = {key: value for key, value in data["scheduler"].items() if "offloading" in key}
    assert keys == found
    assert note in err


_SIMPLE = "SimpleCPUOffloadConnector"


@pytest.mark.parametrize(
    ("variable", "flags", "transfer", "size", "keys", "note"),
    [
        ("1", "--kv-offloading-size 40", None, 40, {}, ""),
        ("1", "--kv-offloading-size 40", {"lazy_offload": True}, 40, {"lazy_offload": True}, ""),
        ("0", "", {"cpu_bytes_to_use": 1 << 30}, 1, {}, ""),
        ("0", "", {"lazy_offload": True}, 8, {"lazy_offload": True}, ""),
        ("0", "", {"kv_offload_backend": "disk"}, None, None, "with a disk is not simulated"),
        ("0", "", {"num_cpu_blocks": 90}, 8, {}, "num_cpu_blocks is not simulated"),
    ],
)
def test_simple_connector(paste, variable, flags, transfer, size, keys, note):
    """By a variable of the environment with the size, or by its name."""
    if transfer is not None:
        config = {"kv_connector": _SIMPLE, "kv_connector_extra_config": transfer}
        flags += f" --kv-transfer-config '{json.dumps(config)}'"
    server = f"VLLM_USE_SIMPLE_KV_OFFLOAD={variable} vllm serve Qwen/Qwen3-8B {flags}"
    code, data, err = paste(CLIENT, server)
    scheduler = data["scheduler"]
    assert (code, scheduler.get("kv_offloading_size")) == (0, size)
    found = {} if keys is None else {"kv_connector": _SIMPLE, **keys}
    assert scheduler.get("kv_offloading", {}) == found
    assert note in err
