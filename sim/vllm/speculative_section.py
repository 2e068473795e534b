"""The key `speculative_config` of a vLLM scheduler: how draft tokens are made."""

from typing import Literal, Self

from pydantic import Field, model_validator

from sim.server_section import Drafts
from sim.strict_model import KeysError, StrictModel

# Tokens of the n-grams that are looked up.
_LOOKUP = 5
# Other methods have a layer for each draft token.
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
