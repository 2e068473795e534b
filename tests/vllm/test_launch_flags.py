"""Scheduler settings as vLLM's flags: none is lost."""

import json
import shlex

import pytest

from sim.core.flags import Command
from sim.latency.config import Parallelism
from sim.vllm.launch_flags import (
    COMMAND,
    KEYS,
    vllm_in_role,
    vllm_launch,
    vllm_parallel,
    vllm_role,
)
from sim.vllm.read_launch import read_vllm_launch
from sim.vllm.section.scheduler import VllmSection

# One value that is not vLLM's default and its flag, if that is not just the declared one
# (tests/families/test_declared_settings.py), and one of each of these.
GIVEN = {
    "max_num_seqs": (64, "--max-num-seqs 64"),
    "max_model_len": (1000, "--max-model-len 1000"),
    "block_size": (32, "--block-size 32"),
    "enable_prefix_caching": (False, "--no-enable-prefix-caching"),
    "speculative_config": (
        {"method": "mtp", "num_speculative_tokens": 2},
        """--speculative-config '{"method":"mtp","num_speculative_tokens":2}'""",
    ),
    "async_scheduling": (False, "--no-async-scheduling"),
    "kv_load_failure_policy": (
        "recompute",
        (
            """--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","""
            """"kv_load_failure_policy":"recompute"}'"""
        ),
    ),
    "scheduler_reserve_full_isl": (False, "--no-scheduler-reserve-full-isl"),
}
ALWAYS = ["--max-num-batched-tokens 2048", "--max-num-seqs 128", "--max-model-len auto"]


def launched(searched=(), **settings):
    """Launch flags with async scheduling on, vLLM's default, unless a test turns it off."""
    written = {"family": "vllm", "async_scheduling": True, **settings}
    return vllm_launch(VllmSection.model_validate(written), searched)


def test_launch_knows_every_key_that_is_declared_without_a_flag():
    """The family is the program; groups follow from the model; no server has an engine."""
    told = {*KEYS.options, *KEYS.switches}
    known = {"family", "version", "kv_cache_groups", "kv_offloading", "engine", *GIVEN}
    assert set(VllmSection.model_fields) - told == known - told


def test_launch_of_groups_gives_how_much_of_them_is_cached():
    """The groups themselves follow from the model."""
    for interval in (32, None):
        keys = {"kv_cache_groups": "model", "prefix_cache_retention_interval": interval}
        assert launched(**keys).flags == (*ALWAYS, f"--prefix-cache-retention-interval {interval}")
    assert launched(kv_cache_groups="model").flags == tuple(ALWAYS)


def test_launch_of_cpu_memory_gives_what_the_connector_is_told():
    """Speeds, and a size in tokens, are no settings of a server."""
    told = {"eviction_policy": "arc", "blocks_per_chunk": 4}
    keys = {"kv_offloading_size": 8, "kv_offloading": {**told, "load_bandwidth_gb_s": 20}}
    size, extra = launched(**keys).flags[len(ALWAYS) :]
    assert size == "--kv-offloading-size 8.0"
    wanted = """{"kv_connector_extra_config":{"eviction_policy":"arc","blocks_per_chunk":4}}"""
    assert extra == f"--kv-transfer-config '{wanted}'"
    assert launched(kv_offloading_size=8, kv_offloading={}).flags == (*ALWAYS, size)
    # Before 0.33.0: 4 blocks of 16 tokens.
    extra = launched(**keys, version="0.19.0").flags[-1]
    wanted = """{"kv_connector_extra_config":{"eviction_policy":"arc","block_size":64}}"""
    assert extra == f"--kv-transfer-config '{wanted}'"


def test_launch_of_the_simple_connector_is_read_back():
    """A variable of the environment chooses it."""
    simple = {"kv_connector": "SimpleCPUOffloadConnector", "lazy_offload": True}
    launch = launched(kv_offloading_size=8, kv_offloading=simple | {"load_bandwidth_gb_s": 20})
    assert launch.variables == ("VLLM_USE_SIMPLE_KV_OFFLOAD=1",)
    variables = dict(each.split("=") for each in launch.variables)
    words = shlex.split(f"vllm serve m {' '.join(launch.flags)}")
    found = read_vllm_launch(Command(variables, words), "h100_sxm")
    assert found is not None
    assert found.scheduler["kv_offloading_size"] == 8
    assert found.scheduler["kv_offloading"] == simple


@pytest.mark.parametrize(
    "tier",
    [
        {"type": "fs", "n_read_threads": 4},
        {"type": "fs", "locality": "REMOTE", "backpressure": {"alpha": 0.5, "policy": "drop"}},
        {"type": "obj", "backpressure": {}},
    ],
)
def test_launch_of_a_tier_is_read_back(tier):
    """The shell puts in where the storage is."""
    keys = {"kv_offloading_size": 8, "kv_offloading": {"secondary_tiers": [tier]}}
    flags = launched(**keys).flags
    assert '"\'"$STORE"\'"' in flags[-1] or '"\'"$BUCKET"\'"' in flags[-1]
    found = read_vllm_launch(
        Command({}, shlex.split(f"vllm serve m {' '.join(flags)}")), "h100_sxm"
    )
    assert found is not None
    assert found.scheduler["kv_offloading"] == keys["kv_offloading"]


def test_launch_of_several_tiers_is_read_back_without_their_speed():
    tiers = [{"type": "fs"}, {"type": "fs", "n_read_threads": 4, "store": "network-file-system"}]
    flags = launched(kv_offloading_size=8, kv_offloading={"secondary_tiers": tiers}).flags
    assert '"$STORE"' in flags[-1]
    assert '"$STORE2"' in flags[-1]
    command = Command({}, shlex.split(f"vllm serve m {' '.join(flags)}"))
    found = read_vllm_launch(command, "h100_sxm")
    assert found is not None
    assert found.scheduler["kv_offloading"]["secondary_tiers"] == [
        tiers[0],
        tiers[1] | {"store": "nvme"},
    ]


@pytest.mark.parametrize("key", GIVEN)
def test_launch_gives_what_differs_from_the_default_and_nothing_else(key):
    """Tokens and sequences of a step are always there: vLLM's own depend on the GPU."""
    value, wanted = GIVEN[key]
    launch = launched(**{key: value})
    assert wanted in launch.flags
    others = [flag for flag in launch.flags if flag != wanted]
    assert others == [flag for flag in ALWAYS if flag.split()[0] != wanted.split()[0]]
    assert (launch.variables, launch.without_flag) == ((), ())


def test_launch_of_a_section_as_it_is_gives_what_has_no_fixed_default():
    """Tokens and requests of a step; all else is as vLLM has it."""
    launch = vllm_launch(VllmSection(family="vllm"))
    assert launch.flags == tuple(ALWAYS)


def test_launch_gives_what_was_searched_even_if_it_is_the_default():
    """A switch that vLLM has on anyway has nothing to say, nor has a key that is not set."""
    searched = ["block_size", "scheduling_policy", "async_scheduling", "max_model_len"]
    launch = launched(searched)
    assert launch.flags == (*ALWAYS, "--block-size 16", "--scheduling-policy fcfs")


def test_launch_on_several_gpus_spreads_experts_where_they_are():
    assert vllm_parallel(Parallelism()) == ()
    flags = ("--tensor-parallel-size 2", "--data-parallel-size 4", "--enable-expert-parallel")
    assert vllm_parallel(Parallelism(tp=2, dp=4, moe_ep=8)) == flags
    assert vllm_parallel(Parallelism(pp=4)) == ("--pipeline-parallel-size 4",)


def test_launch_command_names_the_server():
    """One line for a shell."""
    launch = launched(max_num_seqs=16)
    assert launch.server == "vLLM 0.33.0"
    flags = "--max-num-batched-tokens 2048 --max-num-seqs 16 --max-model-len auto"
    assert launch.command == f"{COMMAND} {flags}"


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, []),
        ({"async_scheduling": True}, ["--async-scheduling"]),
        ({"async_scheduling": False}, []),
    ],
)
def test_launch_of_an_older_version_knows_its_defaults(settings, flags):
    """Before 0.14.0 async scheduling was off; whole prompts were not reserved."""
    section = VllmSection.model_validate({"family": "vllm", "version": "0.11.2", **settings})
    launch = vllm_launch(section)
    assert launch.server == "vLLM 0.11.2"
    assert list(launch.flags) == [*ALWAYS, *flags]


@pytest.mark.parametrize(
    ("role", "policy", "wanted"),
    [
        ("prefill", "recompute", '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'),
        ("decode", "fail", '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'),
    ],
)
def test_launch_of_a_server_with_a_role_names_the_connector(role, policy, wanted):
    section = VllmSection.model_validate({"family": "vllm", "kv_load_failure_policy": policy})
    assert vllm_role(section, role) == f"--kv-transfer-config '{wanted}'"


def test_launch_of_a_role_has_cpu_memory_as_a_second_connector():
    """No flag for its size: that would put OffloadingConnector in place of the other."""
    memory = {"kv_offloading_size": 8, "kv_offloading": {"eviction_policy": "arc"}}
    section = VllmSection.model_validate(
        {"family": "vllm", "kv_load_failure_policy": "recompute", **memory}
    )
    launch = vllm_in_role(vllm_launch(section), section, "decode")
    assert [flag.split()[0] for flag in launch.flags].count("--kv-transfer-config") == 1
    assert "--kv-offloading-size" not in launch.command
    (config,) = [json.loads(word) for word in shlex.split(launch.command) if word[0] == "{"]
    assert (config["kv_connector"], config["kv_role"]) == ("MultiConnector", "kv_consumer")
    sends, keeps = config["kv_connector_extra_config"]["connectors"]
    assert sends == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_consumer",
        "kv_load_failure_policy": "recompute",
    }
    extra = {"cpu_bytes_to_use": 8 << 30, "eviction_policy": "arc"}
    assert keeps["kv_connector_extra_config"] == extra
    found = read_vllm_launch(Command({}, shlex.split(launch.command)), "h100_sxm")
    assert found is not None
    assert found.roles == ("decode",)
    assert {key: found.scheduler[key] for key in memory} == memory


@pytest.mark.parametrize(("version", "is_read"), [("0.19.0", False), ("0.33.0", True)])
def test_cpu_memory_of_an_older_server_of_a_role_is_left_out(version, is_read):
    section = VllmSection.model_validate({"family": "vllm", "kv_offloading_size": 8})
    words = ["docker", "run", f"vllm/vllm-openai:v{version}", "--model", "Qwen/Qwen3-8B"]
    words += shlex.split(vllm_role(section, "prefill"))
    found = read_vllm_launch(Command({}, words), "h100_sxm")
    assert found is not None
    assert found.roles == ("prefill",)
    assert ("kv_offloading_size" in found.scheduler) == is_read
    assert any("--kv-offloading-size" in note for note in found.notes) != is_read
