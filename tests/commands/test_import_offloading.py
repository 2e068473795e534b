"""KV in CPU memory, as launch commands of vLLM ask for it."""

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


def test_kv_of_an_older_server_in_its_cpu_memory_is_left_out(paste):
    server = "docker run vllm/vllm-openai:v0.19.0 --model Qwen/Qwen3-8B --kv-offloading-size 40"
    code, data, err = paste(CLIENT, server)
    assert (code, data["scheduler"]["version"]) == (0, "0.19.0")
    assert "kv_offloading_size" not in data["scheduler"]
    assert "--kv-offloading-size: not simulated with the other flags" in err
