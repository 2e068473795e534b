"""Scheduler settings as vLLM 0.19.0 is launched with them.

Flags have the keys' names with hyphens, switches their `no-` forms. Tokens and sequences of a step
have defaults there that follow from the GPU, and the longest request one that follows from the
model, so that they are always given.
"""

from collections.abc import Collection

from sim.launch_command import LaunchCommand
from sim.vllm.section import VllmSection

SERVER = "vLLM 0.19.0"
COMMAND = 'vllm serve "$MODEL"'

_ALWAYS = ("max_num_batched_tokens", "max_num_seqs", "max_model_len")
_OPTIONS = (
    *_ALWAYS,
    "block_size",
    "num_gpu_blocks_override",
    "gpu_memory_utilization",
    "long_prefill_token_threshold",
    "scheduling_policy",
)
# On in vLLM unless it is told otherwise.
_SWITCHES = (
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "async_scheduling",
    "scheduler_reserve_full_isl",
)


def vllm_launch(section: VllmSection, searched: Collection[str] = ()) -> LaunchCommand:
    """All settings that vLLM would not have by itself.

    Args:
        section: the settings.
        searched: keys of the section that are given even if they are vLLM's defaults.
    """
    flags = [
        f"{_flag(key)} {_value(section, key)}"
        for key in _OPTIONS
        if _is_given(section, key, searched)
    ]
    flags += [f"--no{_flag(key)[1:]}" for key in _SWITCHES if not getattr(section, key)]
    return LaunchCommand(SERVER, COMMAND, (), tuple(flags), ())


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _value(section: VllmSection, key: str) -> str:
    value = getattr(section, key)
    # Without a limit a request may be as long as the pool: `auto` in vLLM.
    return "auto" if key == "max_model_len" and value is None else str(value)


def _is_given(section: VllmSection, key: str, searched: Collection[str]) -> bool:
    value = getattr(section, key)
    if key in _ALWAYS:
        return True
    if value is None:
        return False
    return key in searched or value != VllmSection.model_fields[key].default
