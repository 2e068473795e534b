"""Speculative decoding for the oracle: vLLM's own settings of it, and which drafts are accepted.

Draft token ids are data to a scheduler. Draws say how many there are and how many of them are
accepted, by the request and the place in its output; `sim/engine/acceptance.py` draws the same.
"""

from typing import Any

from vllm.config import SpeculativeConfig, VllmConfig

Config = dict[str, Any]

_UINT64 = (1 << 64) - 1
_ACCEPTED_SALT = 0xD1B54A32D192ED03
_PROPOSED_SALT = 0x8CB92BA72F3D8DD7
_DERIVED = (
    "num_speculative_tokens", "num_lookahead_tokens", "num_prefill_lookahead_tokens",
    "num_hash_lookahead_tokens",
)  # fmt: skip


def speculative_config(config: Config) -> SpeculativeConfig | None:
    """VLLM's settings of a case, without the model that they would look up."""
    if "speculation" not in config:
        return None
    given = {
        "method": config["speculation"]["method"],
        "num_speculative_tokens": config["speculation"]["num_speculative_tokens"],
        "parallel_drafting": False,
        "num_speculative_tokens_per_batch_size": None,
        "disable_eagle_block_drop": False,
        "disable_lookahead_block_hashes": False,
        "draft_model_config": None,
    }
    settings = object.__new__(SpeculativeConfig)
    for name, value in given.items():
        object.__setattr__(settings, name, value)
    return settings


def set_derived(engine_settings: Any) -> None:
    """Set what vLLM derives from its settings: `num_lookahead_tokens`, ..."""
    settings = engine_settings.speculative_config
    if settings is None:
        return
    for name in _DERIVED:
        derived = getattr(VllmConfig, name, None)
        if derived is not None:
            setattr(engine_settings, name, derived.fget(engine_settings))
    if hasattr(VllmConfig, "_set_max_num_scheduled_tokens"):
        VllmConfig._set_max_num_scheduled_tokens(engine_settings)


def num_accepted(config: Config, seed: int, place: int, most: int) -> int:
    """How many of the first `most` drafts after `place` output tokens are accepted."""
    drawn = _drawn(seed, place, _ACCEPTED_SALT)
    at_least, number = 1.0, 0
    for share in config["speculation"]["by_position"][:most]:
        at_least *= float(share)
        if drawn >= at_least:
            break
        number += 1
    return number


def num_proposed(config: Config, seed: int, place: int) -> int:
    """How many tokens are drafted after `place` output tokens."""
    drafts = config["speculation"]
    if "proposed" not in drafts:
        return int(drafts["num_speculative_tokens"])
    drawn = _drawn(seed, place, _PROPOSED_SALT)
    at_most, number = 0.0, 0
    for share in drafts["proposed"][:-1]:
        at_most += float(share)
        if drawn < at_most:
            break
        number += 1
    return number


def _drawn(seed: int, place: int, salt: int) -> float:
    return (_mixed(((seed << 32 | place) ^ salt) + 0x9E3779B97F4A7C15 & _UINT64) >> 11) / 2**53


def _mixed(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _UINT64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _UINT64
    return x ^ x >> 31
