"""The ranges within which the modes of a profile were measured."""

from collections.abc import Mapping
from functools import partial

from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.latency.profile.format import LatencyProfile, Range, mode_of
from sim.latency.profile.terms import MODE_TERMS, QUANTITIES, Reading
from sim.latency.range_counter import Limit


def profile_limits(profile: LatencyProfile) -> Mapping[ForwardMode, tuple[Limit, ...]]:
    """The measured ranges of each mode of a profile."""
    return {
        mode_of(name): tuple(
            _limit(feature, device.range[feature]) for feature in MODE_TERMS[mode_of(name)].ranges
        )
        for name, device in profile.modes.items()
    }


def _limit(feature: str, measured: Range) -> Limit:
    label, low, high = QUANTITIES[feature].label, measured.low, measured.high
    if feature == "mean_context":
        return Limit(label, _decode_context, low, high, _decode_rows)
    return Limit(label, partial(_without_graph, QUANTITIES[feature].read), low, high)


def _decode_context(step: StepFeatures) -> float:
    return step.num_decode_context_tokens


def _decode_rows(step: StepFeatures) -> int:
    return step.num_decode_rows


def _without_graph(read: Reading, step: StepFeatures) -> float:
    return read(step, 0)
