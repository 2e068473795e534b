"""Settings of SGLang's scheduler, under SGLang's flag names, and what follows from them.

How a server drafts: SGLang 0.5.23's arg_groups/speculative_hook.py (`_handle_eagle_family`,
`_handle_ngram`), mem_cache/allocation_sizing.py (`get_alloc_len_per_decode`,
`get_alloc_reserve_per_decode`) and speculative/spec_info.py (`is_eagle`, `supports_mixed_chunk`).
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from sim.engine.acceptance import Speculation
from sim.engine.server_config import BOTH
from sim.sglang.cache.settings import HostCacheSettings, StateSettings, WindowSettings
from sim.sglang.cache.tree.eviction import DEFAULT_SETTINGS, EvictionSettings
from sim.sglang.scheduler.waiting.fairness import FairnessSettings
from sim.sglang.settings import SchedulerSettings
from sim.sglang.version_rules import VERSIONS, VersionRules

# Their drafters read the model's hidden states.
_EAGLE = ("EAGLE", "EAGLE3", "NEXTN")
# What SGLang chooses for most models, and for n-grams.
DEFAULT_STEPS = 3
DEFAULT_NGRAM_TOKENS = 12
DEFAULT_MAX_RUNNING = 48
SPECULATIVE_KEYS = (
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
)
ROLE_KEYS = (
    "role",
    "num_reserved_decode_tokens",
    "disaggregation_decode_extra_slots",
    "disaggregation_decode_polling_interval",
    "disaggregation_decode_enable_radix_cache",
    "retraction_host_tokens",
)


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Settings of static batching.

    Attributes:
        batch_size: largest number of requests of a batch; a batch starts as soon as this many
            requests wait.
        max_wait_ns: a smaller batch starts once its oldest request has waited for this long.
    """

    batch_size: int
    max_wait_ns: int


@dataclass(frozen=True, slots=True)
class PackSettings:
    """Settings of admission `pack`.

    Attributes:
        lookahead: how many requests, from the head of the queue, may be selected.
        force_fifo_every: every pass whose number is a multiple of this considers the whole queue.
        counts_cached: True: a prompt costs all of its tokens; False: only those that are not in the
            prefix cache.
    """

    lookahead: int
    force_fifo_every: int
    counts_cached: bool


@dataclass(frozen=True, slots=True)
class DelayerSettings:
    """Settings of the prefill delayer.

    Attributes:
        max_delay_passes: a pass after this many is not delayed.
        token_usage_low_watermark: below this share of the pool in use nothing is delayed; None:
            this does not count.
        queue_min_ratio: passes are also delayed while fewer requests wait than this share of the
            running ones; None: they are not.
        max_delay_ns: a wait for the queue ends after this time.
    """

    max_delay_passes: int
    token_usage_low_watermark: float | None
    queue_min_ratio: float | None
    max_delay_ns: int


class UserRule(NamedTuple):
    """A class of the user's that takes the place of a built-in rule.

    Attributes:
        name: `module:Class`, with its settings if it has any.
    """

    name: str
    make: Callable[["SchedulerConfig"], Any]


class UserRules(NamedTuple):
    """The user's own rules, by key of the scenario's section; None: the rule is built in."""

    schedule_policy: UserRule | None = None
    radix_eviction_policy: UserRule | None = None
    fairness: UserRule | None = None
    admission: UserRule | None = None


_BUILT_IN = UserRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(SchedulerSettings):
    """Settings of one scheduler; names and defaults are SGLang 0.5.23's, where SGLang has them.

    `sim.sglang.section.scheduler.SglangSection` describes the settings, and the scenario schema
    checks them: nothing is checked here. The attributes below are not keys of a scenario, or have
    another type than the key.

    Attributes:
        version: whose rules; name in `sim.sglang.version_rules.VERSIONS`.
        max_total_tokens: KV tokens of the pool; `pool_tokens` is this number in whole pages.
        fairness: the rule that keeps requests from starving; None: no rule.
        admission: which waiting requests a pass considers; None: all, as in SGLang.
        prefill_delayer: settings of the prefill delayer; None: there is none.
        waiting_timeout_ns, running_timeout_ns: a request that waits, or has run since its first
            batch, for longer is aborted; None: no such limit.
        static_batching: settings of static batching; None: continuous batching, as in SGLang.
        host_cache: host memory for evicted KV; None: there is no host memory.
        window: the second pool, of layers with a sliding window; None: there is one pool.
        speculative_algorithm: how draft tokens are made; None: no speculative decoding. The two
            settings after it are then 0.
        speculation: the same, with how many are accepted.
        states: the pool of states of state-space layers; None: the model has no such layers.
        retraction_host_tokens: on a decode server, host memory for KV of retracted requests, in
            tokens; None: it never runs out.
        role: what the server computes (`sim.engine.server_config`). The other settings of
            `ROLE_KEYS` matter to decode servers alone.
        micro_batches: stages of the pipeline, each of which works on a batch of its own.
        user: rules of the user's own; the settings of the same names then say nothing.
        engine: the installed engine that decides (`sim.installed`); None: the rules here do.
    """

    schedule_policy: str = "fcfs"
    max_total_tokens: int = 32_768
    radix_eviction_policy: str = "lru"
    radix_eviction_policy_config: EvictionSettings = DEFAULT_SETTINGS
    fairness: FairnessSettings | None = None
    admission: PackSettings | None = None
    static_batching: StaticSettings | None = None
    prefill_delayer: DelayerSettings | None = None
    waiting_timeout_ns: int | None = None
    running_timeout_ns: int | None = None
    load_balance_method: str = "round_robin"
    host_cache: HostCacheSettings | None = None
    window: WindowSettings | None = None
    speculative_algorithm: str | None = None
    speculative_num_steps: int = 0
    speculative_num_draft_tokens: int = 0
    speculation: Speculation | None = None
    states: StateSettings | None = None
    disaggregation_decode_extra_slots: int = 0
    retraction_host_tokens: int | None = None
    role: str = BOTH
    micro_batches: int = 1
    user: UserRules = _BUILT_IN
    engine: Any = None

    def own_rule(self, key: str) -> Any:
        """A new instance of the user's own class for a key of the section; None: it has none."""
        rule: UserRule | None = getattr(self.user, key)
        return None if rule is None else rule.make(self)

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values; a user's own rule is given by its name.

        `micro_batches` and `speculation` are left out, because they are no settings; `window`,
        `states`, storage and the settings of speculative decoding, if there is none; and those of a
        role, if the server computes whole requests.
        """
        settings = asdict(replace(self, user=_BUILT_IN, speculation=None, engine=None))
        del settings["user"], settings["micro_batches"], settings["speculation"]
        if self.engine is None:
            del settings["engine"]
        else:
            settings["engine"] = str(self.engine.folder)
        if self.window is None:
            del settings["window"]
        if self.host_cache is not None and self.host_cache.storage is None:
            del settings["host_cache"]["storage"]
        if self.speculative_algorithm is None:
            for key in SPECULATIVE_KEYS:
                del settings[key]
        if self.states is None:
            del settings["states"]
        if self.role == BOTH:
            for key in ROLE_KEYS:
                del settings[key]
        named = {key: rule.name for key, rule in self.user._asdict().items() if rule is not None}
        return {**settings, **named}

    @property
    def family(self) -> str:
        return "sglang"

    @property
    def rules(self) -> VersionRules:
        return VERSIONS[self.version]

    @property
    def overlaps(self) -> bool:
        return not self.disable_overlap_schedule

    @property
    def keeps_tokens_in_flight(self) -> bool:
        """False: row by row, a retracted request loses the tokens of a step in flight."""
        return self.speculation is None and self.engine is None

    @property
    def max_rows(self) -> int:
        return self.max_running_requests

    @property
    def host_cache_tokens(self) -> int | None:
        return None if self.host_cache is None else self.host_cache.capacity_tokens

    @property
    def chunking(self) -> bool:
        return self.chunked_prefill_size > 0

    @property
    def mixing(self) -> bool:
        """Whether batches are mixed; SGLang mixes with chunked prefill only."""
        return self.enable_mixed_chunk and self.chunking

    @property
    def priority_sign(self) -> int:
        """1 or -1: a request is more important if its priority times this is smaller."""
        return 1 if self.schedule_low_priority_values_first else -1

    @property
    def usual_priority(self) -> int:
        """The priority of a request that has none of its own (rule 9): by default the lowest."""
        usual = self.default_priority_value
        if usual is not None and (
            self.enable_priority_scheduling or self.schedule_policy == "priority"
        ):
            return usual
        return sys.maxsize if self.schedule_low_priority_values_first else -sys.maxsize - 1

    @property
    def pool_tokens(self) -> int:
        return self.max_total_tokens // self.page_size * self.page_size


def compares_pairs(algorithm: str | None) -> bool:
    """Whether a cached token is found only if the next one is equal, too."""
    return algorithm in _EAGLE


def mixes(algorithm: str | None) -> bool:
    """Whether `enable_mixed_chunk` has an effect: with other algorithms SGLang turns it off."""
    return algorithm in _EAGLE


def places_per_step(num_steps: int, num_verified: int) -> int:
    """Places for KV that a step may need.

    The drafter makes `num_steps` passes. Of a row the model verifies `num_verified` tokens, its
    last known one included.
    """
    return max(num_steps, num_verified)
