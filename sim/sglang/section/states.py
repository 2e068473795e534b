"""The keys of the pool of states: what goes together, and what they mean."""

from math import lcm
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.sglang.cache.states.settings import StateSettings
from sim.sglang.config import SchedulerConfig
from sim.sglang.section.speculation import num_verified
from sim.sglang.section.state_room import KEY, keeps_states, num_tracked, strategy
from sim.sglang.version_rules import NEWEST
from sim.validation.strict_model import KeysError

if TYPE_CHECKING:
    from sim.sglang.section.keys import SglangKeys

_STRATEGY = "mamba_radix_cache_strategy"
# SGLang 0.5.23's `FLA_CHUNK_SIZE`, which its kernels compute states for.
_KERNEL_TOKENS = 64


def check_states(section: "SglangKeys") -> None:
    """Refuse what is not simulated with states.

    Raises:
        KeysError: with the keys.
    """
    if section.max_mamba_cache_size is None:
        return
    if section.version != NEWEST:
        raise KeysError(f"{KEY} is simulated with version {NEWEST} only", KEY, "version")
    if not keeps_states(section):
        return
    if strategy(section) == "extra_buffer":
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
    drafts = section.speculative_algorithm
    if drafts is not None and section.mamba_track_interval < num_verified(section):
        raise KeysError(
            f"mamba_track_interval must be at least the {num_verified(section)} tokens that a step"
            " verifies, as in SGLang (arg_groups/mamba_hook.py, validate_mamba_extra_buffer)",
            "mamba_track_interval",
            "speculative_algorithm",
        )


def state_settings(section: "SglangKeys", config: SchedulerConfig) -> StateSettings | None:
    """The settings of the pool of states; None: there is none.

    Raises:
        InputError: how many states there are is not known.
    """
    num_states = section.max_mamba_cache_size
    if num_states is None or not keeps_states(section):
        return None
    if num_states == "model":
        raise InputError("model needs the scenario's model and GPU", key=("scheduler", KEY))
    checkpoint_tokens = lcm(max(_KERNEL_TOKENS, config.page_size), config.page_size)
    return StateSettings(
        num_states,
        num_tracked(section, overlaps=config.overlaps),
        checkpoint_tokens,
        lcm(checkpoint_tokens, section.mamba_track_interval),
        _KERNEL_TOKENS,
    )
