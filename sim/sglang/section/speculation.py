"""The keys of speculative decoding: what goes together, SGLang's defaults, and what they mean."""

from typing import TYPE_CHECKING, Any, Literal

from sim.core.errors import InputError
from sim.engine.server_config import PREFILL
from sim.family.section import Drafts
from sim.sglang.config import (
    DEFAULT_MAX_RUNNING,
    DEFAULT_NGRAM_TOKENS,
    DEFAULT_STEPS,
    SPECULATIVE_KEYS,
    compares_pairs,
    mixes,
)
from sim.sglang.version_rules import NEWEST
from sim.validation import KeysError

if TYPE_CHECKING:
    from sim.sglang.section.keys import SglangKeys

KEY = "speculative_algorithm"
_MODEL = "speculative_draft_model_path"
_HOOK = "arg_groups/speculative_hook.py"
_CHECK_STAGES = "check_pipeline_parallel_compat"
_STEPS, _TOKENS, _TOPK = (
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "speculative_eagle_topk",
)
_DRAFTERS: dict[str, Literal["nothing", "model"]] = {"NGRAM": "nothing", "STANDALONE": "model"}


def with_default_slots(given: Any) -> Any:
    """The keys of a section; with speculative decoding, SGLang's smaller number of slots."""
    if isinstance(given, dict) and given.get(KEY) is not None:
        return {"max_running_requests": DEFAULT_MAX_RUNNING, **given}
    return given


def check_speculation(section: "SglangKeys") -> None:
    """Refuse what SGLang refuses or turns off, and what is not simulated with drafts.

    Raises KeysError: with the keys.
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


def num_verified(section: "SglangKeys") -> int:
    """Tokens of a row that a step verifies: SGLang's number of draft tokens.

    The row's last known token is one of them.
    """
    if section.speculative_algorithm == "NGRAM":
        return section.speculative_num_draft_tokens or DEFAULT_NGRAM_TOKENS
    # A chain of drafts has one for each step, whatever the flag says.
    return 1 + (section.speculative_num_steps or DEFAULT_STEPS)


def speculative_settings(section: "SglangKeys") -> dict[str, Any]:
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


def check_drafts_of_ranks(section: "SglangKeys") -> None:
    """Refuse drafters that SGLang 0.5.23 refuses with DP attention.

    Raises InputError: with its reason.
    """
    handlers = {"STANDALONE": "_handle_eagle_family", "NGRAM": "_handle_ngram"}
    handler = handlers.get(section.speculative_algorithm or "")
    if handler is not None:
        reason = (
            f"SGLang refuses {section.speculative_algorithm} with latency.dp above 1: DP attention"
            f" is not supported ({_HOOK}, {handler})"
        )
        raise InputError(reason, key=("scheduler", KEY))


def check_drafts_of_stages(section: "SglangKeys", role: str) -> None:
    """Refuse what SGLang 0.5.23 refuses with pipelines of stages.

    Raises InputError: with its reason.
    """
    algorithm, place = section.speculative_algorithm, "arg_groups/validation_hook.py"
    if algorithm is None:
        return
    if algorithm not in ("EAGLE", "NEXTN"):
        reason = f"only EAGLE drafts in a pipeline, not {algorithm}"
    elif role != PREFILL:
        reason = "with stages only prefill servers draft"
    else:
        return
    reason = f"SGLang refuses it with latency.pp above 1: {reason} ({place}, {_CHECK_STAGES})"
    raise InputError(reason, key=("scheduler", KEY))


def check_drafts_of_decode_server(section: "SglangKeys") -> None:
    """Refuse what SGLang 0.5.23 refuses on a decode server.

    Raises InputError: with its reason.
    """
    algorithm = section.speculative_algorithm
    if algorithm is None or compares_pairs(algorithm):
        return
    if section.disaggregation_decode_enable_radix_cache:
        reason = (
            f"SGLang refuses {algorithm} with disaggregation_decode_enable_radix_cache"
            f" ({_HOOK}, handle_speculative_decoding)"
        )
        raise InputError(reason, key=("scheduler", KEY))
