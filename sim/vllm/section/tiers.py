"""The key `secondary_tiers` of `scheduler.kv_offloading`: what lies below CPU memory."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.core.errors import KeyPath
from sim.family.store_section import Store
from sim.validation import KeysError, StrictModel
from sim.vllm.offload.settings import PressureSettings, TierSettings, TierType

_Threads = Annotated[int, Field(ge=1, le=4096)]
_Seconds = Annotated[float, Field(ge=0, le=10**6)]
_Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
# Of `EMABackpressureDetector`, for what is in the machine and what is behind a network.
_WATER_MARKS_S = {"LOCAL": (0.010, 0.002), "REMOTE": (0.050, 0.010)}


class BackPressure(StrictModel):
    """When a tier is too slow for what is stored: vLLM's `EMABackpressureDetector`.

    docs/explanation/offloading.md explains the rules.
    """

    policy: Literal["throttle", "drop"] = "throttle"
    """What happens to stores under pressure. `throttle`: some are dropped, the more the higher it
    is. `drop`: all are."""
    high_water_s: Annotated[float, Field(gt=0, le=10**6)] | None = None
    """If storing a MiB takes longer on average, there is pressure. Without it: 0.01, or 0.05 with
    type `obj` or locality `REMOTE`. Unit: s/MiB."""
    low_water_s: _Seconds | None = None
    """If storing a MiB takes less time on average, the pressure ends. Without it: 0.002, or 0.01.
    Unit: s/MiB."""
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Weight of the newest store in the average of seconds for a MiB. Unit: share."""
    warmup_completions: _Count = 10
    """The average begins with the mean of this many stores. Unit: stores."""
    decay_half_life_s: _Seconds = 2.0
    """Under pressure, half of the average is left after so long without a store. Unit: s."""
    cooldown_s: _Seconds = 1.0
    """When the pressure has ended, every second store is dropped for so long. Unit: s."""
    failure_threshold: _Count = 3
    """So many stores in a row that fail are pressure, too. Unit: stores."""

    def settings(self, chunk_bytes: int, place: str) -> PressureSettings:
        """`place`: `LOCAL` or `REMOTE`."""
        high_s, low_s = _WATER_MARKS_S[place]
        given = self.model_dump(exclude={"policy", "high_water_s", "low_water_s"})
        return PressureSettings(
            high_water_s=high_s if self.high_water_s is None else self.high_water_s,
            low_water_s=low_s if self.low_water_s is None else self.low_water_s,
            drops_all=self.policy == "drop",
            chunk_bytes=chunk_bytes,
            **given,
        )


class SecondaryTierSection(StrictModel):
    """A tier below CPU memory (`secondary_tiers` of vLLM's TieringOffloadingSpec).

    It keeps chunks in the scenario's `store`, which says how large and how fast it is, or in one of
    its own.
    """

    type: TierType
    """`fs`: chunks are files. `obj`: they are objects."""
    n_read_threads: _Threads = 16
    """Of type `fs`: threads that take loads before stores. Unit: threads."""
    n_write_threads: _Threads = 16
    """Of type `fs`: threads that take stores before loads. Unit: threads."""
    locality: Literal["LOCAL", "REMOTE"] | None = None
    """Where the storage is. The marks of `backpressure` depend on it."""
    backpressure: BackPressure | None = None
    """Stores are dropped while the tier is too slow for them. Needs the scenario's `model`. Without
    it: all are made, however late."""
    store: Store | None = None
    """Where the tier keeps chunks, in place of the scenario's `store`. Of several tiers, all but
    one need it."""

    @model_validator(mode="after")
    def _check_marks(self) -> Self:
        pressure = self.backpressure
        if pressure is not None:
            found = pressure.settings(1, self._place)
            if found.low_water_s > found.high_water_s:
                raise KeysError(
                    f"low_water_s {found.low_water_s:g} must be at most high_water_s"
                    f" {found.high_water_s:g}",
                    "backpressure",
                )
        return self

    @property
    def _place(self) -> str:
        is_remote = self.locality == "REMOTE" or self.type == "obj"
        return "REMOTE" if is_remote else "LOCAL"

    def settings(
        self, chunk_bytes: int, chunk_tokens: int, token_bytes: float | None, where: KeyPath
    ) -> TierSettings:
        """What the scheduler gets.

        Args:
            chunk_bytes: size of a chunk; only `backpressure` needs it.
            chunk_tokens: tokens of a chunk.
            token_bytes: KV of a token; None: the scenario has no model.
            where: the key of this section.

        Raises InputError: its store is given in bytes without a model, or has no room for a chunk.
        """
        pressure, store = self.backpressure, self.store
        own = None
        if store is not None:
            own = store.settings(chunk_tokens, token_bytes, (*where, "store"))
        return TierSettings(
            kind=self.type,
            n_read_threads=self.n_read_threads,
            n_write_threads=self.n_write_threads,
            pressure=None if pressure is None else pressure.settings(chunk_bytes, self._place),
            store=own,
        )
