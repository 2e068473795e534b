"""What an installed vLLM is told of a server's settings."""

from sim.vllm.installed import engine_settings
from sim.vllm.section.scheduler import VllmSection


def told(num_stages=1, **scheduler):
    section = VllmSection.model_validate({"family": "vllm", **scheduler})
    config = section.config(4800)
    return engine_settings(
        section.pipeline_config(config, num_stages) if num_stages > 1 else config
    )


def test_settings_of_an_installed_vllm_are_those_of_its_flags():
    settings = told(max_num_seqs=4, scheduling_policy="priority", max_model_len=900, watermark=0.1)
    assert (settings["max_num_seqs"], settings["policy"], settings["watermark"]) == (
        4, "priority", 0.1,
    )  # fmt: skip
    assert (settings["num_gpu_blocks"], settings["block_size"], settings["stages"]) == (301, 16, 1)
    assert (settings["max_model_len"], settings["async_scheduling"]) == (900, True)
    assert "kv_cache_groups" not in settings
    assert told(num_stages=3)["stages"] == 3


def test_settings_of_an_installed_vllm_have_a_group_for_each_block_table():
    groups = [
        {"kind": "full_attention"},
        {"kind": "sliding_window", "sliding_window": 64, "count": 2},
    ]
    settings = told(kv_cache_groups=groups, num_gpu_blocks_override=301)
    window = {"kind": "sliding_window", "sliding_window": 64}
    assert settings["kv_cache_groups"] == [{"kind": "full_attention"}, window, window]
    assert settings["prefix_cache_retention_interval"] == 0
