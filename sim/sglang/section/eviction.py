"""The key `radix_eviction_policy_config`: settings of SGLang's eviction policies."""

from typing import Annotated, Literal

from pydantic import Field

from sim.core.told import MAX_COUNT
from sim.sglang.cache.tree.eviction_ranks import DEFAULT_SETTINGS, EvictionSettings
from sim.user.named_class import OrUserClass, UserClass
from sim.validation.strict_model import KeysError, StrictModel

EvictionName = Annotated[
    Literal["lru", "lfu", "slru", "tlru", "priority", "hit-benefit"] | UserClass, OrUserClass()
]
_KEY = "radix_eviction_policy_config"
_Tokens = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class EvictionConfig(StrictModel):
    """SGLang's `--radix-eviction-policy-config`."""

    protected_threshold: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    """Under `slru`, a node with at least this many uses is protected: it is evicted only when no
    leaf with fewer uses is left. 2 without it. Unit: uses."""
    threshold: _Tokens | None = None
    """Under `tlru`, tokens of a prefill that is fast enough. More than `next_prompt_estimate`.
    Unit: tokens."""
    next_prompt_estimate: _Tokens | None = None
    """Under `tlru`, tokens that the next prompt of a conversation is expected to add. 0 without
    it. Unit: tokens."""


_OF_POLICY = {
    "slru": {"protected_threshold"},
    "tlru": {"threshold", "next_prompt_estimate"},
}


def check_eviction(policy: str | UserClass, config: EvictionConfig | None) -> None:
    """Refuse settings of another policy, and a tlru that would be lru (SGLang 0.5.23 does both).

    Raises:
        KeysError: with the keys.
    """
    known = set() if isinstance(policy, UserClass) else _OF_POLICY.get(policy, set())
    given = set() if config is None else config.model_fields_set
    if unknown := sorted(given - known):
        raise KeysError(
            f"{unknown[0]} is no setting of radix_eviction_policy {policy}",
            _KEY,
            "radix_eviction_policy",
        )
    settings = eviction_settings(config)
    if policy == "tlru" and settings.threshold <= settings.next_prompt_estimate:
        raise KeysError(
            f"radix_eviction_policy tlru needs a threshold above next_prompt_estimate, got"
            f" {settings.threshold} and {settings.next_prompt_estimate}",
            _KEY,
            "radix_eviction_policy",
        )


def eviction_settings(config: EvictionConfig | None) -> EvictionSettings:
    if config is None:
        return DEFAULT_SETTINGS
    return EvictionSettings(**config.model_dump(exclude_none=True))
