"""A logged vLLM server as its launch command, and the pool that it measured."""

from collections.abc import Mapping
from typing import Any

from sim.core.flags import Command, flag_of, flag_words
from sim.core.versions import is_version
from sim.server_log.records import LoggedServer
from sim.vllm.read_launch import FLAGS
from sim.vllm.section.groups import block_bytes
from sim.vllm.section.scheduler import VllmSection

# No flags: how the command line was split, and the model's name as a word of its own.
_NO_FLAGS = {"model_tag", "subparser", "dispatch_function", "config"}
# What the pool follows from; the log has the pool itself.
_MEMORY = {"gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override"}
# Flags that the log has under other names once vLLM has found their values.
_FOUND = {
    "max_model_len": "max_seq_len",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
}
_GIB = 2**30


def vllm_launch_of_log(server: LoggedServer) -> Command:
    """See `Family.launch_of_log`."""
    flags = {key: value for key, value in server.flags.items() if key not in _MEMORY | _NO_FLAGS}
    if server.has_all_flags:
        flags = {key: value for key, value in flags.items() if _is_key(key)}
    for flag, setting in _FOUND.items():
        if flags.get(flag) is None and type(found := server.settings.get(setting)) is int:
            flags[flag] = found
    if not flags.get("model"):
        flags["model"] = server.model
    image = f"vllm:v{server.version}" if is_version(server.version) else "vllm"
    words = [word for key, value in flags.items() for word in flag_words(key, value)]
    return Command({}, [image, "vllm", "serve", *words])


def _is_key(key: str) -> bool:
    name = flag_of(key)[2:]
    return name in FLAGS.options or name in FLAGS.switches


def vllm_measured_pool(
    server: LoggedServer, settings: Mapping[str, Any], model: str, tp: int
) -> dict[str, Any]:
    """See `Family.measured_pool`. With groups of layers, a block is not `block_size` tokens."""
    # Most commands read no model.
    from sim.latency.architectures.model_key import shape_if_known  # noqa: PLC0415

    pool = server.kv_pool
    block_size = int(settings.get("block_size", VllmSection(family="vllm").block_size))
    num_blocks = pool.num_blocks
    shape = shape_if_known(model) if settings.get("kv_cache_groups") == "model" else None
    if num_blocks is None and shape is not None and pool.memory_gib is not None:
        num_blocks = int(pool.memory_gib * _GIB) // block_bytes(shape, tp, block_size)
    elif num_blocks is None and shape is None and pool.num_tokens is not None:
        num_blocks = pool.num_tokens // block_size
    return {} if num_blocks is None or num_blocks < 2 else {"num_gpu_blocks_override": num_blocks}
