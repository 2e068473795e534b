"""The key `prefill_delayer`: SGLang's `--enable-prefill-delayer` and its settings."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from sim.core.errors import InputError
from sim.core.told import Count
from sim.core.units import ms_to_ns
from sim.sglang.scheduler.delayer_settings import DelayerSettings
from sim.validation.strict_model import StrictModel

if TYPE_CHECKING:
    from sim.sglang.section.keys import SglangKeys

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


def check_delayer_of_ranks(section: "SglangKeys") -> None:
    """Refuse intervals that each rank holds for itself, since the delayer asks all ranks at once.

    SGLang 0.5.23's `_should_defer_prefill` (managers/scheduler.py) comes before the pass in which
    the ranks gather what each could prefill. A rank with few running requests would gather alone.

    Raises:
        InputError: the settings have both.
    """
    if section.prefill_delayer is None:
        return
    for key in ("decode_first", "prefill_decode_interval_min_bs"):
        if getattr(section, key):
            reason = (
                f"does not go with {key} and latency.dp above 1: SGLang's ranks would wait for each"
                " other in different places (managers/scheduler.py, _should_defer_prefill)"
            )
            raise InputError(reason, key=("scheduler", "prefill_delayer"))
