"""Prompts with shared beginnings: one system prompt for all, one prefix for each group."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from sim.core.arrays import Int64
from sim.core.errors import KeyPath
from sim.core.tokens import SegmentPrompt
from sim.validation.strict_model import StrictModel
from sim.workload.lengths import LengthDistribution, draw_lengths
from sim.workload.rng import RandomStreams, TokenStreams

NO_GROUP = -1


class Prefixes(StrictModel):
    """Prompt beginnings that the requests of a group share. They follow the system prompt."""

    groups: Annotated[int, Field(ge=1, le=10**6)]
    """How many different prefixes there are."""
    tokens: LengthDistribution
    """Length of a prefix. It is drawn once for each group. Unit: tokens."""
    share_probability: Annotated[float, Field(ge=0, le=1)]
    """Probability that a request begins with the prefix of a group."""
    zipf: Annotated[float, Field(ge=0, le=100)] = 1.0
    """How uneven the groups are: group g (from 0) is drawn in proportion to 1 / (g + 1) ** zipf.
    0 makes all groups equally likely."""
    unshared_as_long: bool = False
    """`true`: a request without a prefix gets extra tokens of its own. Their number is the length
    of the prefix of a drawn group, so `share_probability` changes the length of no prompt."""


@dataclass(frozen=True, slots=True)
class PrefixedPrompts:
    """Prompts that consist of a system prompt, a group's prefix, and text of their own.

    Attributes:
        group: the group of each row, [num_rows]; `NO_GROUP`: the prompt has no prefix.
        group_tokens: length of each group's prefix, [num_groups].
        system_seed, group_seed, own_seed: the first token streams of the system prompt, of the
            groups and of the rows.
    """

    system_tokens: int
    group: Int64
    group_tokens: Int64
    own_tokens: Int64
    system_seed: int
    group_seed: int
    own_seed: int

    @property
    def num_tokens(self) -> Int64:
        # NO_GROUP is -1, the index of the appended 0.
        prefix_tokens = np.append(self.group_tokens, 0)[self.group]
        return self.system_tokens + prefix_tokens + self.own_tokens

    def prompt(self, row: int) -> SegmentPrompt:
        segments = [(self.system_seed, self.system_tokens)] if self.system_tokens else []
        group = self.group.item(row)
        if group != NO_GROUP:
            segments.append((self.group_seed + group, self.group_tokens.item(group)))
        segments.append((self.own_seed + row, self.own_tokens.item(row)))
        return SegmentPrompt(tuple(segments))


def unshared_prompts(own_tokens: Int64, streams: TokenStreams) -> PrefixedPrompts:
    """Prompts of these lengths that have nothing in common."""
    return PrefixedPrompts(
        system_tokens=0,
        group=np.full(len(own_tokens), NO_GROUP, dtype=np.int64),
        group_tokens=np.zeros(0, dtype=np.int64),
        own_tokens=own_tokens,
        system_seed=0,
        group_seed=0,
        own_seed=streams.take(len(own_tokens)),
    )


def prefixed_prompts(
    own_tokens: Int64,
    *,
    system_tokens: int,
    prefixes: Prefixes | None,
    random: RandomStreams,
    streams: TokenStreams,
    key: KeyPath,
) -> PrefixedPrompts:
    """Put a system prompt and group prefixes before prompts of these lengths."""
    num_rows = len(own_tokens)
    group = np.full(num_rows, NO_GROUP, dtype=np.int64)
    group_tokens = np.zeros(0, dtype=np.int64)
    if prefixes is not None:
        drawn = _draw_groups(prefixes, num_rows, random.stream("prefix_group"))
        shares = random.stream("prefix_share").random(num_rows) < prefixes.share_probability
        group = np.where(shares, drawn, NO_GROUP)
        group_tokens = draw_lengths(
            prefixes.tokens,
            prefixes.groups,
            random.stream("prefix_tokens"),
            key=(*key, "prefixes", "tokens"),
        )
        if prefixes.unshared_as_long:
            own_tokens = own_tokens + np.where(shares, 0, group_tokens[drawn])
    return PrefixedPrompts(
        system_tokens=system_tokens,
        group=group,
        group_tokens=group_tokens,
        own_tokens=own_tokens,
        system_seed=streams.take(1),
        group_seed=streams.take(len(group_tokens)),
        own_seed=streams.take(num_rows),
    )


def _draw_groups(prefixes: Prefixes, num_rows: int, rng: "np.random.Generator") -> Int64:
    popularity = np.arange(1, prefixes.groups + 1, dtype=np.float64) ** -prefixes.zipf
    cumulative = np.cumsum(popularity)
    places = rng.random(num_rows) * cumulative[-1]
    groups: Int64 = np.searchsorted(cumulative, places, side="right").astype(np.int64)
    return groups
