"""What logs tell of step times.

Single times from a log are uneven, so decode steps that are alike are taken together.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log1p
from typing import NamedTuple

import numpy as np

from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.latency.features import StepFeatures
from sim.latency.profile.format import DeviceModel
from sim.server_log.read import ServerLog
from sim.server_log.records import LogEvent

# Decode steps with the same rows, whose mean contexts differ by less than this share, are a group.
# A group with fewer steps than this is left out: the mean of a few uneven times says little.
_ALIKE, _FEWEST_ALIKE = 0.1, 12
# A step that took more than this times its group's median waited for something else, too.
_UNUSUAL = 2.0


# The largest amount of anything in a profile.
MOST = 1_000_000_000


def check_amounts(log: ServerLog, event: LogEvent) -> None:
    """Check that a step has no more of anything than servers have; its number counts steps.

    Raises:
        InputError: it has.
    """
    for name, value in event.fields.items():
        if isinstance(value, int | float) and name != "step" and value > MOST:
            raise InputError(f"{log.name}: line {event.line}: {name}: {value:.6g} is too much")


def whole(event: LogEvent, name: str) -> int:
    """A field of a line as a whole number; 0 where the line has none of that name."""
    value = event.fields.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


class DecodeTime(NamedTuple):
    """Decode steps with the same rows and about as long contexts.

    Attributes:
        num_rows: rows of each.
        num_context_tokens: KV tokens of all rows, the mean over the steps.
        step_ns: how long a step took, the mean.
        in_graph: whether they ran in a CUDA graph.
    """

    num_rows: int
    num_context_tokens: int
    step_ns: float
    in_graph: bool


@dataclass(slots=True)
class Stretch:
    """A part of a log in which the server was busy.

    Attributes:
        wall_s: how long it was.
        decodes: rows of each of its decode steps, and KV tokens.
        num_batches, num_tokens: of its prefill.
        after_idle: it is the first batches after an idle time, and their first decode step.
    """

    wall_s: float = 0.0
    decodes: list[tuple[int, int]] = field(default_factory=list)
    num_batches: int = 0
    num_tokens: int = 0
    after_idle: bool = False


class Iteration(NamedTuple):
    """A step, as its line tells it.

    Attributes:
        number: it counts the server's steps.
        at_us: when the line was written.
        prefill_rows, prefill_tokens, decode_rows: requests and new tokens.
        context: tokens that the decode rows attend to.
    """

    number: int
    at_us: int
    prefill_rows: int
    prefill_tokens: int
    decode_rows: int
    context: int

    @property
    def num_new_tokens(self) -> int:
        return self.prefill_tokens + self.decode_rows

    def features(self) -> StepFeatures:
        """As far as the line tells them: its prompts are as long as each other, and not cached."""
        rows, tokens, decode_rows, context = self[2:]
        if not rows:
            return StepFeatures(ForwardMode.DECODE, 0, 0, 0, decode_rows, context, context)
        mode = ForwardMode.MIXED if decode_rows else ForwardMode.EXTEND
        attention = tokens**2 // rows
        return StepFeatures(mode, tokens, attention, rows, decode_rows, context, context + tokens)


@dataclass(slots=True)
class Chain:
    """Steps with prompts, and the decode steps right before and after them.

    Attributes:
        wall_s: how long all of them took.
        steps: in their order.
    """

    wall_s: float = 0.0
    steps: list[Iteration] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LoggedTimes:
    """What a log tells about step times.

    Attributes:
        decodes: times of decode steps.
        stretches, batches: of SGLang's logs; of each prefill batch its new tokens, requests and
            cached tokens.
        chains: of vLLM's logs.
    """

    decodes: Sequence[DecodeTime]
    stretches: Sequence[Stretch] = ()
    batches: Sequence[tuple[int, int, int]] = ()
    chains: Sequence[Chain] = ()

    @property
    def num_prefills(self) -> int:
        """Stretches and chains: sums of times that steps with prompts are in."""
        return len(self.stretches) + len(self.chains)


class ExtendFit(NamedTuple):
    """What was fitted to steps with prompts.

    Attributes:
        model: their part of the profile.
        cold_start_s: how much longer the first batches after an idle time take.
        cold_start_tokens: half of the smallest such prompts together: a limit that all exceed.
    """

    model: DeviceModel
    cold_start_s: float = 0.0
    cold_start_tokens: int = 1


@dataclass(slots=True)
class _Group:
    """The times of decode steps that are alike, and the sum of their KV tokens."""

    num_tokens: int = 0
    steps_s: "array[float]" = field(default_factory=lambda: array("d"))

    def mean_s(self) -> float:
        """The mean, without those that have something else in them."""
        steps_s = np.array(self.steps_s)
        return float(steps_s[steps_s < _UNUSUAL * np.median(steps_s)].mean())


class Groups:
    """All decode steps of a log, by rows, graph and mean context."""

    def __init__(self) -> None:
        self._groups: defaultdict[tuple[int, bool, int], _Group] = defaultdict(_Group)

    def take(self, rows: int, tokens: int, step_s: float, *, in_graph: bool) -> None:
        group = self._groups[rows, in_graph, int(log1p(tokens / rows) / _ALIKE)]
        group.num_tokens += tokens
        group.steps_s.append(step_s)

    def times(self) -> Sequence[DecodeTime]:
        """The groups with enough steps, those with few rows first."""
        return [
            DecodeTime(
                num_rows=rows,
                num_context_tokens=round(group.num_tokens / len(group.steps_s)),
                step_ns=NS_PER_S * group.mean_s(),
                in_graph=in_graph,
            )
            for (rows, in_graph, _), group in sorted(self._groups.items())
            if len(group.steps_s) >= _FEWEST_ALIKE
        ]
