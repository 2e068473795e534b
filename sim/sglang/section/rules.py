"""Keys of the section that choose rules: fairness, admission, eviction, the prefill delayer."""

from typing import Annotated, Literal

from pydantic import Field

from sim.core.declared import MAX_COUNT, Count
from sim.core.units import ms_to_ns
from sim.sglang.cache.tree.eviction import DEFAULT_SETTINGS, EvictionSettings
from sim.sglang.config import DelayerSettings, PackSettings
from sim.sglang.scheduler.waiting.fairness import (
    AgingTokens,
    FairnessSettings,
    FairnessT,
    ForceFifo,
    KLpm,
)
from sim.user.objects import OrUserClass, UserClass
from sim.validation import ByKind, KeysError, StrictModel

# A day: longer than any simulated run.
_MOST_MS = 86_400_000


class FairnessTConfig(StrictModel):
    """Requests that have waited for a time T go first, oldest first."""

    kind: Literal["fairness_t"]
    t_ms: Annotated[float, Field(ge=0, le=_MOST_MS)] | None
    """The time T. 0 is first come, first served; `null` is the policy alone. Unit: ms."""

    def settings(self) -> FairnessSettings | None:
        return None if self.t_ms is None else FairnessT(ms_to_ns(self.t_ms))


class KLpmConfig(StrictModel):
    """The oldest request goes first, then k - 1 requests in the policy's order, and so on."""

    kind: Literal["k_lpm"]
    k: Count
    """Length of the cycle. 1 is first come, first served. Unit: requests."""

    def settings(self) -> FairnessSettings | None:
        return KLpm(self.k)


class AgingTokensConfig(StrictModel):
    """Most cached tokens first, with a credit for each pass waited.

    Only with schedule policy `lpm`.
    """

    kind: Literal["aging_tokens_per_pass"]
    tokens: Count
    """Credit of a request for each pass that it waited. Unit: tokens."""

    def settings(self) -> FairnessSettings | None:
        return AgingTokens(self.tokens)


class ForceFifoConfig(StrictModel):
    """Every n-th pass takes the queue in order of arrival."""

    kind: Literal["force_fifo_every"]
    passes: Count
    """The number n. 1: every pass. Unit: passes."""

    def settings(self) -> FairnessSettings | None:
        return ForceFifo(self.passes)


FairnessConfig = Annotated[
    Annotated[
        FairnessTConfig | KLpmConfig | AgingTokensConfig | ForceFifoConfig,
        ByKind(),
    ]
    | UserClass,
    OrUserClass(),
]


def fairness_settings(rule: FairnessConfig | None) -> FairnessSettings | None:
    """The settings of a rule; None: there is no rule, or it is the user's own."""
    return None if rule is None or isinstance(rule, UserClass) else rule.settings()


class SglangAdmissionConfig(StrictModel):
    """A pass takes the queue in order, up to the first request that does not fit, as in SGLang."""

    kind: Literal["sglang"]

    def settings(self) -> PackSettings | None:
        return None


class PackConfig(StrictModel):
    """A pass takes the cheapest of the first `lookahead` requests, up to `max_prefill_tokens`.

    docs/explanation/packing.md explains it.
    """

    kind: Literal["pack"]
    lookahead: Count = 64
    """How many requests at the head of the queue are considered. Unit: requests."""
    force_fifo_every: Count = 8
    """Every n-th pass takes the queue in order: with 8, the passes 8, 16, 24 and so on. Unit:
    passes."""
    cost: Literal["prompt", "uncached"] = "prompt"
    """What a request costs: all tokens of its prompt, or only those that are not in the prefix
    cache."""

    def settings(self) -> PackSettings | None:
        return PackSettings(self.lookahead, self.force_fifo_every, self.cost == "prompt")


AdmissionConfig = Annotated[
    Annotated[SglangAdmissionConfig | PackConfig, ByKind()] | UserClass,
    OrUserClass(),
]


def admission_settings(rule: AdmissionConfig | None) -> PackSettings | None:
    """The settings of a rule; None: there is no rule, or it is the user's own."""
    return None if rule is None or isinstance(rule, UserClass) else rule.settings()


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


# The settings that a policy has; other policies have none.
_OF_POLICY = {
    "slru": {"protected_threshold"},
    "tlru": {"threshold", "next_prompt_estimate"},
}


def check_eviction(policy: str | UserClass, config: EvictionConfig | None) -> None:
    """Refuse settings of another policy, and a tlru that would be lru, as SGLang 0.5.23 does.

    Raises KeysError: with the keys.
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


class PrefillDelayerSection(StrictModel):
    """Delays prefills while fewer slots are free than the largest of the last 16 prefills had rows.

    Names and defaults are those of SGLang 0.5.23's flags `--prefill-delayer-...`.
    """

    max_delay_passes: Count = 30
    """A pass after this many decisions is not delayed any more. Unit: decisions."""
    token_usage_low_watermark: Annotated[float, Field(ge=0, le=1)] | None = None
    """Nothing is delayed while less of the pool than this is in use. Without it: usage does not
    count. Unit: share."""
    queue_min_ratio: Annotated[float, Field(ge=0, le=1000)] | None = None
    """A pass is also delayed while fewer requests wait than this times the running ones. Without
    it: it is not. Unit: share."""
    max_delay_ms: Annotated[float, Field(ge=0, le=_MOST_MS)] = 5000
    """A delay because of `queue_min_ratio` ends after this time. Unit: ms."""

    def settings(self) -> DelayerSettings:
        return DelayerSettings(
            self.max_delay_passes,
            self.token_usage_low_watermark,
            self.queue_min_ratio,
            ms_to_ns(self.max_delay_ms),
        )
