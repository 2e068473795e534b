"""The key `prefill_delayer`: SGLang's `--enable-prefill-delayer` and its settings."""

from typing import Annotated

from pydantic import Field

from sim.core.told import Count
from sim.core.units import ms_to_ns
from sim.sglang.scheduler.prefill.delayer_settings import DelayerSettings
from sim.validation.strict_model import StrictModel

_MAX_DELAY_MS = 86_400_000


class PrefillDelayerSection(StrictModel):
    """Delays a pass while fewer slots are free than the largest of the last 16 prefills had rows.

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
    max_delay_ms: Annotated[float, Field(ge=0, le=_MAX_DELAY_MS)] = 5000
    """A delay because of `queue_min_ratio` ends after this time. Unit: ms."""

    def settings(self) -> DelayerSettings:
        return DelayerSettings(
            self.max_delay_passes,
            self.token_usage_low_watermark,
            self.queue_min_ratio,
            ms_to_ns(self.max_delay_ms),
        )
