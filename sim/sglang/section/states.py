"""The keys of the pool of states: what goes together, and what they mean."""

from math import lcm
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.sglang.cache.state_settings import StateSettings
from sim.sglang.config import SchedulerConfig
from sim.sglang.version_rules import NEWEST
from sim.strict_model import KeysError

if TYPE_CHECKING:
    from sim.sglang.section.keys import SglangKeys

KEY = "max_mamba_cache_size"
_STRATEGY = "mamba_radix_cache_strategy"
# SGLang 0.5.23's `FLA_CHUNK_SIZE`, which its kernels compute states for.
_KERNEL_TOKENS = 64
# States for each running request, beside the tracked ones (mem_cache/kv_cache_configurator.py).
_STATES_OF_REQUEST = 3


def check_states(section: "SglangKeys") -> None:
    """Refuse what is not simulated with states.

    Raises:
        KeysError: with the keys.
    """
    if section.max_mamba_cache_size is None:
        return
    if section.version != NEWEST:
        raise KeysError(f"{KEY} is simulated with version {NEWEST} only", KEY, "version")
    for key in ("host_cache", "sliding_window", "speculative_algorithm"):
        if getattr(section, key) is not None:
            raise KeysError(f"{KEY} is not simulated together with {key}", KEY, key)
    if section.disable_radix_cache:
        raise KeysError(
            f"{KEY} is not simulated with disable_radix_cache: then a state for each running"
            " request is enough",
            KEY,
            "disable_radix_cache",
        )
    if section.mamba_radix_cache_strategy == "extra_buffer":
        _check_tracking(section)
    elif section.page_size != 1:
        raise KeysError(
            f"{_STRATEGY} no_buffer needs page_size 1, not {section.page_size}: give extra_buffer",
            _STRATEGY,
            "page_size",
        )
    elif not section.disable_overlap_schedule:
        raise KeysError(
            f"{_STRATEGY} no_buffer needs disable_overlap_schedule: true",
            _STRATEGY,
            "disable_overlap_schedule",
        )


def _check_tracking(section: "SglangKeys") -> None:
    """What SGLang refuses to start with (arg_groups/mamba_hook.py and overrides.py).

    Raises:
        KeysError: with the keys.
    """
    page_size = section.page_size
    if max(_KERNEL_TOKENS, page_size) % min(_KERNEL_TOKENS, page_size):
        raise KeysError(
            f"{KEY} needs a page_size that divides {_KERNEL_TOKENS}, or a multiple of it",
            KEY,
            "page_size",
        )
    if section.mamba_track_interval % page_size:
        reason = f"mamba_track_interval must be whole pages of {page_size}"
        raise KeysError(reason, "mamba_track_interval", "page_size")


def state_settings(section: "SglangKeys", config: SchedulerConfig) -> StateSettings | None:
    """The settings of the pool of states; None: there is none.

    Raises:
        InputError: too few states for the running requests: SGLang would run fewer of them.
    """
    num_states = section.max_mamba_cache_size
    if num_states is None:
        return None
    num_tracked = 0
    if section.mamba_radix_cache_strategy == "extra_buffer":
        num_tracked = 2 if config.overlaps else 1
    of_request = _STATES_OF_REQUEST + num_tracked
    most = num_states // of_request
    if most < config.max_running_requests:
        raise InputError(
            f"has room for the states of {most} running requests, {of_request} each, not of"
            f" max_running_requests {config.max_running_requests}",
            key=("scheduler", KEY),
        )
    checkpoint_tokens = lcm(max(_KERNEL_TOKENS, config.page_size), config.page_size)
    return StateSettings(
        num_states,
        num_tracked,
        checkpoint_tokens,
        lcm(checkpoint_tokens, section.mamba_track_interval),
        _KERNEL_TOKENS,
    )
