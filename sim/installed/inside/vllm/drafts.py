"""VLLM's own settings of speculative decoding."""

from typing import Any

from vllm.config import SpeculativeConfig, VllmConfig

Config = dict[str, Any]

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
