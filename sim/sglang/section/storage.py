"""The key `storage` of `scheduler.host_cache`: how a server uses the scenario's store."""

from typing import Annotated, Literal

from pydantic import Field

from sim.core.declared import MAX_COUNT
from sim.core.units import NS_PER_S
from sim.engine.store import StoreSettings
from sim.sglang.cache.settings import StorageSettings
from sim.validation import StrictModel

_Seconds = Annotated[float, Field(ge=0, le=10**6)]
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
# SGLang 0.5.23's `prefetch_timeout_per_ki_token` is for this many tokens.
_TOKENS_OF_TIMEOUT = 1024


# Keys of `--hicache-storage-backend-extra-config`; the others are flags.
STORAGE_EXTRA = ("prefetch_threshold", "prefetch_timeout_base", "prefetch_timeout_per_ki_token")


class StorageSection(StrictModel):
    """SGLang's tier below host memory (`--hicache-storage-backend`); needs the scenario's `store`.

    docs/explanation/storage.md explains the rules. The last three keys are those of
    `--hicache-storage-backend-extra-config`.
    """

    prefetch_policy: Literal["best_effort", "wait_complete", "timeout"] = "timeout"
    """What becomes of a fetch whose request could be admitted. `best_effort`: it ends.
    `wait_complete`: the request waits for it. `timeout`: it waits for a time."""
    prefetch_retry_poll_interval: _Count = 8
    """Passes after which a waiting request is looked up again that the store had nothing for. 0:
    it is not. Unit: passes."""
    prefetch_retry_max_attempts: _Count = 8
    """How often a request is looked up again at most. Unit: lookups."""
    prefetch_threshold: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 256
    """Fewer tokens are neither looked up nor fetched. Unit: tokens."""
    prefetch_timeout_base: _Seconds = 1.0
    """How long a request waits for its fetch under `timeout`, from the first pass that could admit
    it. Unit: s."""
    prefetch_timeout_per_ki_token: _Seconds = 0.25
    """What is added to this for each 1024 tokens of the prompt that are looked up. Unit: s."""

    def settings(self, store: StoreSettings, page_size: int) -> StorageSettings:
        return StorageSettings(
            store=store,
            prefetch_policy=self.prefetch_policy,
            prefetch_threshold=self.prefetch_threshold,
            timeout_ns=self.prefetch_timeout_base * NS_PER_S,
            timeout_ns_per_page=page_size
            / _TOKENS_OF_TIMEOUT
            * self.prefetch_timeout_per_ki_token
            * NS_PER_S,
            retry_interval=self.prefetch_retry_poll_interval,
            most_lookups=self.prefetch_retry_max_attempts,
        )
