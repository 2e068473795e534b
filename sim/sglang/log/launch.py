"""A logged SGLang server as its launch command, and the pool that it measured.

The log has the value of every setting, given or not, after SGLang has made its own of them.
"""

from collections.abc import Mapping
from typing import Any

from sim.core.flags import Command, flag_of, flag_words
from sim.server_log.records import LoggedServer
from sim.sglang.read_launch import FLAGS

# What the pool follows from; the log has the pool itself.
_MEMORY = {"mem_fraction_static", "max_total_tokens"}
# SGLang 0.4.6 to 0.5.23, `handle_data_parallelism`: what DP attention does to the given values.
_CONSERVATIVENESS = 0.3
_SWITCHES = {*FLAGS.switches, *(name for group in FLAGS.others for name in group.switches)}


def sglang_launch_of_log(server: LoggedServer) -> Command:
    """See `Family.launch_of_log`."""
    flags = {key: value for key, value in server.flags.items() if key not in _MEMORY}
    if flags.get("enable_hierarchical_cache") is not True:
        flags = {key: value for key, value in flags.items() if not key.startswith("hicache_")}
    for key, setting, factor in (
        ("max_running_requests", "max_running_requests", _num_ranks(flags)),
        ("context_length", "context_len", 1),
    ):
        if flags.get(key) is None and type(found := server.settings.get(setting)) is int:
            flags[key] = found * factor
    if (num_ranks := _num_ranks(flags)) > 1:
        if type(chunk := flags.get("chunked_prefill_size")) is int and chunk > 0:
            flags["chunked_prefill_size"] = chunk * num_ranks
        if isinstance(share := flags.get("schedule_conservativeness"), float):
            flags["schedule_conservativeness"] = round(share / _CONSERVATIVENESS, 6)
    image = f"sglang:v{server.version}" if server.version else "sglang"
    words = [word for key, value in flags.items() for word in _words(key, value)]
    return Command({}, [image, "sglang", "serve", *words])


def _num_ranks(flags: Mapping[str, object]) -> int:
    """Ranks that share what is given for all of them."""
    size = flags.get("dp_size")
    return size if flags.get("enable_dp_attention") is True and type(size) is int else 1


def _words(key: str, value: object) -> list[str]:
    """A setting as a flag, if it is one that changes the decisions, or a switch that is on."""
    name = flag_of(key)[2:]
    if isinstance(value, bool):
        return flag_words(key, value) if value and name in _SWITCHES else []
    is_flag = name in FLAGS.options and not isinstance(value, list)
    return flag_words(key, value) if is_flag else []


def sglang_measured_pool(server: LoggedServer) -> dict[str, Any]:
    """See `Family.measured_pool`."""
    tokens = server.kv_pool.num_tokens
    return {} if tokens is None else {"max_total_tokens": tokens}
