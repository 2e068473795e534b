"""The keys of speculative decoding: what goes together, SGLang's defaults, and what they mean."""

from typing import TYPE_CHECKING, Any, Literal

from sim.core.errors import InputError
from sim.family.section import Drafts
from sim.sglang.config import SPECULATIVE_KEYS
from sim.sglang.drafting import DEFAULT_MAX_RUNNING, DEFAULT_NGRAM_TOKENS, DEFAULT_STEPS, mixes
from sim.sglang.version_rules import NEWEST
from sim.validation.strict_model import KeysError

if TYPE_CHECKING:
    from sim.sglang.section.keys import SglangKeys

KEY = "speculative_algorithm"
_MODEL = "speculative_draft_model_path"
_STEPS, _TOKENS, _TOPK = (
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "speculative_eagle_topk",
)
_DRAFTERS: dict[str, Literal["nothing", "model"]] = {"NGRAM": "nothing", "STANDALONE": "model"}
# What is simulated without drafts only: the keys, and the values that turn them off.
_ALONE: dict[str, Any] = {
    "max_mamba_cache_size": None,
    "decode_max_requests": None,
    "batching": "continuous",
}


def with_default_slots(given: Any) -> Any:
    """The keys of a section; with speculative decoding, SGLang's smaller number of slots."""
    if isinstance(given, dict) and given.get(KEY) is not None:
        return {"max_running_requests": DEFAULT_MAX_RUNNING, **given}
    return given


def check_speculation(section: "SglangKeys") -> None:
    """Refuse what SGLang refuses or turns off, and what is not simulated with drafts.

    Raises:
        KeysError: with the keys.
    """
    algorithm = section.speculative_algorithm
    given = [key for key in (_STEPS, _TOKENS, _TOPK, _MODEL) if getattr(section, key) is not None]
    if algorithm is None:
        if given:
            raise KeysError(f"{given[0]} needs {KEY}", given[0])
        return
    if section.version != NEWEST:
        raise KeysError(f"{KEY} is simulated with version {NEWEST} only", KEY, "version")
    if section.enable_mixed_chunk and not mixes(algorithm):
        raise KeysError(
            f"enable_mixed_chunk does not go with {KEY} {algorithm}: SGLang turns it off",
            "enable_mixed_chunk",
            KEY,
        )
    if algorithm != "NGRAM" and given not in ([], [_MODEL]) and _STEPS not in given:
        raise KeysError(f"{given[0]} needs {_STEPS}, as in SGLang", given[0], KEY)
    for key, off in _ALONE.items():
        if getattr(section, key) != off:
            raise KeysError(f"{key} is not simulated together with {KEY}", key, KEY)


def num_verified(section: "SglangKeys") -> int:
    """Tokens of a row that a step verifies: SGLang's number of draft tokens.

    The row's last known token is one of them.
    """
    if section.speculative_algorithm == "NGRAM":
        return section.speculative_num_draft_tokens or DEFAULT_NGRAM_TOKENS
    # A chain of drafts has one for each step, whatever the flag says.
    return 1 + (section.speculative_num_steps or DEFAULT_STEPS)


def speculative_settings(section: "SglangKeys") -> dict[str, Any]:
    """The settings of `SchedulerConfig`."""
    if section.speculative_algorithm is None:
        return {}
    num_tokens = num_verified(section)
    default = num_tokens if section.speculative_algorithm == "NGRAM" else DEFAULT_STEPS
    steps = section.speculative_num_steps or default
    return dict(
        zip(SPECULATIVE_KEYS, (section.speculative_algorithm, steps, num_tokens), strict=True)
    )


def drafts_of(section: "SglangKeys") -> Drafts | None:
    algorithm = section.speculative_algorithm
    if algorithm is None:
        return None
    return Drafts(
        algorithm,
        num_verified(section) - 1,
        _DRAFTERS.get(algorithm, "layer"),
        model=section.speculative_draft_model_path,
        model_key=("scheduler", _MODEL),
    )


def check_ranks(section: "SglangKeys") -> None:
    """Refuse ranks. SGLang itself refuses them with NGRAM and STANDALONE.

    Raises:
        InputError: there is speculative decoding.
    """
    if section.speculative_algorithm is not None:
        reason = "is simulated for one rank only, not with latency.dp above 1"
        raise InputError(reason, key=("scheduler", KEY))
