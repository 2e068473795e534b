"""The key `speculative_config` of a vLLM scheduler: how draft tokens are made."""

from typing import Literal, Protocol, Self

from pydantic import Field, model_validator

from sim.core.errors import InputError
from sim.family.section import Drafts
from sim.validation import KeysError, StrictModel
from sim.vllm.version_rules import VERSIONS

# Default number of tokens of the n-grams that are looked up.
_LOOKUP = 5
# What drafts, by method. All other methods have a layer for each draft token.
_DRAFTERS: dict[str, Literal["nothing", "layer", "model"]] = {
    "ngram": "nothing",
    "draft_model": "model",
}


class SpeculativeConfig(StrictModel):
    """Speculative decoding, as in the flag `--speculative-config` of vLLM."""

    method: Literal["ngram", "eagle", "eagle3", "mtp", "draft_model"]
    """How draft tokens are made: looked up in the request's own tokens, by layers that read the
    model's hidden states, or by a small model. How many are accepted is the scenario's
    `acceptance`."""
    num_speculative_tokens: int = Field(ge=1, le=64)
    """Draft tokens of a request in a step. Unit: tokens."""
    model: str | None = None
    """The drafter, named as `model` of the scenario names the model. If its sizes are known, its
    weights and its KV are counted when the size of the pool is derived (methods `draft_model`,
    `eagle`, `eagle3`). Launch commands name it."""
    prompt_lookup_min: int | None = Field(default=None, ge=1)
    """Method `ngram` in a real run: tokens of the shortest n-gram that is looked up. Without it:
    `prompt_lookup_max`, or 5. Unit: tokens."""
    prompt_lookup_max: int | None = Field(default=None, ge=1)
    """Method `ngram` in a real run: tokens of the longest n-gram that is looked up. Without it:
    `prompt_lookup_min`, or 5. Unit: tokens."""

    @model_validator(mode="after")
    def _check_lookup(self) -> Self:
        if self.lookup[0] > self.lookup[1]:
            raise KeysError(
                f"prompt_lookup_min {self.lookup[0]} is above prompt_lookup_max {self.lookup[1]}",
                "prompt_lookup_min",
                "prompt_lookup_max",
            )
        return self

    @property
    def lookup(self) -> tuple[int, int]:
        """The bounds, as vLLM fills them in (`SpeculativeConfig.__post_init__`)."""
        shortest, longest = self.prompt_lookup_min, self.prompt_lookup_max
        return shortest or longest or _LOOKUP, longest or shortest or _LOOKUP

    @property
    def drafts(self) -> Drafts:
        drafter = _DRAFTERS.get(self.method, "layer")
        return Drafts(self.method, self.num_speculative_tokens, drafter, self.lookup, self.model)


class DraftKeys(Protocol):
    """The keys of a scheduler that `check_drafts` looks at."""

    @property
    def version(self) -> str: ...
    @property
    def speculative_config(self) -> SpeculativeConfig | None: ...
    @property
    def async_scheduling(self) -> bool | None: ...
    @property
    def long_prefill_token_threshold(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...


def check_drafts(section: DraftKeys) -> None:
    """Refuse what does not go with drafts.

    Raises KeysError: with the keys.
    """
    drafts = section.speculative_config
    if drafts is None:
        return
    rules, row_tokens = VERSIONS[section.version], 1 + drafts.num_speculative_tokens
    if not rules.speculates:
        raise KeysError(
            f"speculative decoding of vLLM {section.version} is not simulated",
            "speculative_config",
            "version",
        )
    if drafts.method == "ngram" and section.async_scheduling and not rules.async_lookup:
        raise KeysError(
            f"vLLM {section.version} refuses async_scheduling true with drafts of method ngram:"
            " VllmConfig.__post_init__, config/vllm.py",
            "async_scheduling",
            "speculative_config",
        )
    if rules.pads_new_rows and 0 < section.long_prefill_token_threshold < row_tokens:
        raise KeysError(
            f"long_prefill_token_threshold {section.long_prefill_token_threshold} is less than the"
            f" {row_tokens} tokens of a row with drafts",
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


def check_staged_drafts(version: str, *, is_async: bool) -> None:
    """Refuse drafts that do not go with pipeline stages.

    Without async scheduling vLLM gives a row its drafts, and decides its next step, before it knows
    the token that they follow. The row then has fewer tokens than its worker asserts.

    Raises InputError: with the key.
    """
    if not VERSIONS[version].async_micro_batches:
        reason = f"above 1 is not simulated with speculative decoding of vLLM {version}"
        raise InputError(reason, key=("latency", "pp"))
    if not is_async:
        reason = (
            f"vLLM {version} fails without it with drafts and latency.pp above 1: rows get drafts"
            " before their token is known (prepare_inputs, v1/worker/gpu/model_runner.py)"
        )
        raise InputError(reason, key=("scheduler", "async_scheduling"))
