"""Many prompts as a few numpy columns. The object of a prompt is made when it is asked for."""

from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np

from sim.core.arrays import Int64
from sim.core.tokens import (
    ArrayPrompt,
    BlockPrompt,
    Prompt,
    SegmentPrompt,
    Segments,
    stream_token_ids,
)


class PromptColumn(Protocol):
    """The prompts of a workload by row. `num_tokens` has shape [num_rows]."""

    @property
    def num_tokens(self) -> Int64: ...

    def prompt(self, row: int) -> Prompt: ...


@dataclass(frozen=True, slots=True)
class SegmentPrompts:
    """The prompt of row i consists of segments `offsets[i]` to `offsets[i + 1]`."""

    seeds: Int64
    lengths: Int64
    offsets: Int64

    @property
    def num_tokens(self) -> Int64:
        ends = np.concatenate(([0], np.cumsum(self.lengths)))
        return np.diff(ends[self.offsets])

    def prompt(self, row: int) -> SegmentPrompt:
        part = slice(self.offsets.item(row), self.offsets.item(row + 1))
        pairs = zip(self.seeds[part].tolist(), self.lengths[part].tolist(), strict=True)
        return SegmentPrompt(tuple(pairs))


@dataclass(frozen=True, slots=True)
class ArrayPrompts:
    """The prompt of row i consists of token ids `offsets[i]` to `offsets[i + 1]`."""

    ids: Int64
    offsets: Int64

    @property
    def num_tokens(self) -> Int64:
        return np.diff(self.offsets)

    def prompt(self, row: int) -> ArrayPrompt:
        return ArrayPrompt(self.ids[self.offsets.item(row) : self.offsets.item(row + 1)])


@dataclass(frozen=True, slots=True)
class EitherPrompts:
    """Prompts of which some are given by token ids, the others by segments."""

    segments: SegmentPrompts
    arrays: ArrayPrompts

    @property
    def num_tokens(self) -> Int64:
        return self.segments.num_tokens + self.arrays.num_tokens

    def prompt(self, row: int) -> Prompt:
        given_by_ids = self.arrays.offsets[row] < self.arrays.offsets[row + 1]
        return self.arrays.prompt(row) if given_by_ids else self.segments.prompt(row)


@dataclass(frozen=True, slots=True)
class BlockPrompts:
    """The prompt of row i consists of blocks `offsets[i]` to `offsets[i + 1]`.

    Its last block may be partial.
    """

    block_ids: Int64
    offsets: Int64
    num_tokens: Int64
    block_size: int

    def prompt(self, row: int) -> BlockPrompt:
        block_ids = self.block_ids[self.offsets.item(row) : self.offsets.item(row + 1)]
        return BlockPrompt(block_ids, self.block_size, self.num_tokens.item(row))

    def picked(self, rows: Int64) -> "BlockPrompts":
        parts = [self.block_ids[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        ends = np.cumsum([0, *map(len, parts)])
        return BlockPrompts(np.concatenate(parts), ends, self.num_tokens[rows], self.block_size)


NO_GROUP = -1


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


NO_SUMMARY = -1


@dataclass(frozen=True, slots=True)
class TurnPrompts:
    """Prompts of conversations: system prompt, summary, what was said since, then the new text.

    Row i begins with `system_tokens[i]` tokens of stream `system_seeds[i]`, then the answer of row
    `summary[i]` unless this is `NO_SUMMARY`, then the texts and answers of rows `begin[i]` to i.
    The streams of row 0 are `own_seed` and `output_seed`; those of row i are i higher.
    """

    system_tokens: Int64
    system_seeds: Int64
    summary: Int64
    begin: Int64
    own_tokens: Int64
    quoted_tokens: Int64
    own_seed: int
    output_seed: int
    # By row: prompts that the prompt of the next row continues. It shares their segments.
    _latest: dict[int, SegmentPrompt] = field(default_factory=dict, init=False, repr=False)

    @property
    def num_tokens(self) -> Int64:
        both = self.own_tokens + self.quoted_tokens
        before = np.cumsum(both) - both
        summed = np.where(self.summary < 0, 0, self.quoted_tokens[self.summary])
        said: Int64 = summed + before - before[self.begin]
        return self.system_tokens + said + self.own_tokens

    def prompt(self, row: int) -> SegmentPrompt:
        begin = self.begin.item(row)
        earlier = self._latest.pop(row - 1, None) if begin < row else None
        if earlier is None:
            parts = [self._start(row)]
            for said in range(begin, row):
                parts += (self._text(said), self._answer(said))
            parts.append(self._text(row))
            prompt = SegmentPrompt(tuple(chain.from_iterable(parts)))
        else:
            prompt = SegmentPrompt(self._answer(row - 1) + self._text(row), earlier)
        if row + 1 < len(self.begin) and self.begin.item(row + 1) == begin:
            self._latest[row] = prompt
        return prompt

    def _start(self, row: int) -> Segments:
        summary, num_tokens = self.summary.item(row), self.system_tokens.item(row)
        system = ((self.system_seeds.item(row), num_tokens),) if num_tokens else ()
        return system if summary == NO_SUMMARY else system + self._answer(summary)

    def _text(self, row: int) -> Segments:
        num_tokens = self.own_tokens.item(row)
        return ((self.own_seed + row, num_tokens),) if num_tokens else ()

    def _answer(self, row: int) -> Segments:
        num_tokens = self.quoted_tokens.item(row)
        return ((self.output_seed + row, num_tokens),) if num_tokens else ()


@dataclass(frozen=True, slots=True)
class HistoryPrompts:
    """Prompts that begin with what earlier rows sent and got.

    The prompt of row i is, for each row from `history_row[i]` on, its own part and the answer as it
    is quoted; then the own part of row i. `history_row[i]` is i if the row has no history.
    """

    own: PromptColumn
    history_row: Int64
    quoted_tokens: Int64
    output_seeds: Int64

    @property
    def num_tokens(self) -> Int64:
        own = self.own.num_tokens
        sums = np.concatenate(([0], np.cumsum(own + self.quoted_tokens)))
        return sums[np.arange(len(own))] - sums[self.history_row] + own

    def prompt(self, row: int) -> Prompt:
        first = self.history_row.item(row)
        if first == row:
            return self.own.prompt(row)
        parts = []
        for earlier in range(first, row):
            parts.append(self.own.prompt(earlier).token_ids())
            quoted = self.quoted_tokens.item(earlier)
            parts.append(stream_token_ids(self.output_seeds.item(earlier), 0, quoted))
        parts.append(self.own.prompt(row).token_ids())
        return ArrayPrompt(np.concatenate(parts))
