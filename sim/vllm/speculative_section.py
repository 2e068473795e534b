"""The key `speculative_config`: speculative decoding on a vLLM server."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sim.server_section import Drafts
from sim.strict_model import KeysError, StrictModel
from sim.vllm.version_rules import VERSIONS

if TYPE_CHECKING:
    from sim.vllm.section import VllmSection

# Other methods have a layer for each draft token.
_DRAFTERS: dict[str, Literal["nothing", "model"]] = {"ngram": "nothing", "draft_model": "model"}


class SpeculativeConfig(StrictModel):
    """Speculative decoding, as in the flag `--speculative-config` of vLLM."""

    method: Literal["ngram", "eagle", "eagle3", "mtp", "draft_model"]
    """How draft tokens are made: looked up in the request's own tokens, by layers that read the
    model's hidden states, or by a small model. How many are accepted is the scenario's
    `acceptance`."""
    num_speculative_tokens: int = Field(ge=1, le=64)
    """Draft tokens of a request in a step. Unit: tokens."""
    model: str | None = None
    """The drafter; only launch commands name it."""


def drafts_of(config: SpeculativeConfig | None) -> Drafts | None:
    """What the key says; None: there are no drafts."""
    if config is None:
        return None
    return Drafts(
        config.method, config.num_speculative_tokens, _DRAFTERS.get(config.method, "layer")
    )


def check_drafts(section: "VllmSection") -> None:
    """Refuse what does not go with drafts.

    Raises:
        KeysError: with the keys.
    """
    drafts = section.speculative_config
    if drafts is None:
        return
    rules, length = VERSIONS[section.version], 1 + drafts.num_speculative_tokens
    if not rules.speculates:
        raise KeysError(
            f"speculative decoding of vLLM {section.version} is not simulated",
            "speculative_config",
            "version",
        )
    if drafts.method == "ngram" and section.async_scheduling:
        raise KeysError(
            "async_scheduling true does not go with drafts of method ngram",
            "async_scheduling",
            "speculative_config",
        )
    if rules.pads_new_rows and 0 < section.long_prefill_token_threshold < length:
        raise KeysError(
            f"long_prefill_token_threshold {section.long_prefill_token_threshold} is less than the"
            f" {length} tokens of a row with drafts",
            "long_prefill_token_threshold",
            "speculative_config",
        )
    if drafts.method == "draft_model" and section.max_num_batched_tokens <= section.max_num_seqs:
        raise KeysError(
            f"max_num_batched_tokens {section.max_num_batched_tokens} leaves none beside the"
            f" tokens of the draft model, max_num_seqs {section.max_num_seqs}",
            "max_num_batched_tokens",
            "max_num_seqs",
        )
