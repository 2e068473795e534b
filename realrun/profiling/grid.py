"""The compositions that a profile measures: first a coarse grid, then the points in between.

There are four kinds of steps: decode rows of equal contexts; decode rows of unequal contexts;
prefill rows with a cached prefix; and prefill rows together with decode rows. For each kind the
compositions are a grid over the axes below. Round 0 has the ends of each axis, and each further
round has the points halfway between those before. So the measured points cover the grid evenly
even if the profile is stopped early.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from realrun.profiling.composition import Composition, GridLimits

Build = Callable[..., Composition]
Leveled = tuple[int, Composition]

# Sizes of decode graphs (1, 2, 4, 8, 16, 24, ...), and sizes between them.
_DECODE_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_UNEVEN_ROWS = (4, 16, 64, 256)
_UNEVEN_CONTEXTS = (64, 256, 1024, 4096, 16384)
# Powers of two, which fill a kernel's tiles, and sizes in between, which are more frequent in real
# runs.
_NEW_TOKENS = (
    1, 8, 16, 32, 45, 64, 90, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096, 5793,
    8192, 11585, 16384
)  # fmt: skip
# New tokens that several prefill rows divide among them.
_SPLIT_TOKENS = (64, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PREFIXES = (0, 64, 256, 1024, 4096)
_FEW_PREFIXES = (0, 512)
_PREFILL_ROWS = (2, 4, 8, 16, 32)
_MIXED_TOKENS = (16, 90, 512, 1024, 2048, 8192)
_MIXED_DECODE_ROWS = (1, 8, 64)
_MIXED_CONTEXTS = (64, 512, 2048)
# For several prefill rows together with decode rows a few points are enough.
_MIXED_PREFILL_ROWS = 4
_MIXED_FEW = ((256, 1024, 4096), (8, 64), _FEW_PREFIXES, (512, 2048))
_CONTEXTS = tuple(16 << doublings for doublings in range(16))

MAX_NEW_TOKENS = _NEW_TOKENS[-1]


def grid(limits: GridLimits) -> list[list[Composition]]:
    """One list for each round: its compositions within the limits. No composition occurs twice."""
    level_of: dict[Composition, int] = {}
    for level, composition in _all_kinds(limits):
        level_of[composition] = min(level, level_of.get(composition, level))
    rounds: list[list[Composition]] = [[] for _ in range(max(level_of.values(), default=-1) + 1)]
    for composition, level in level_of.items():
        rounds[level].append(composition)
    return rounds


def decode(num_rows: int, context: int) -> Composition:
    """Decode rows of equal contexts."""
    return Composition(decode_contexts=(context,) * num_rows)


def spread(num_rows: int, mean: int) -> Composition:
    """Decode rows whose contexts increase evenly, from an eighth of their mean."""
    offset = mean - max(mean // 8, 1)
    rows = range(num_rows)
    contexts = [mean + offset * (2 * row - num_rows + 1) // (num_rows - 1) for row in rows]
    contexts[-1] += num_rows * mean - sum(contexts)
    return Composition(decode_contexts=tuple(contexts))


def straggler(num_rows: int, mean: int) -> Composition:
    """Decode rows, one of which has as much context as all others together."""
    total = num_rows * mean
    return Composition(decode_contexts=(*_shares(total // 2, num_rows - 1), total - total // 2))


def extend(num_rows: int, num_tokens: int, prefix: int) -> Composition:
    """Prefill rows that divide `num_tokens` new tokens; each row has a cached prefix."""
    return Composition(prefill=tuple((prefix, new) for new in _shares(num_tokens, num_rows)))


def mixed(
    prefill_rows: int, num_tokens: int, decode_rows: int, prefix: int, context: int
) -> Composition:
    """Prefill rows as in `extend`, and decode rows of equal contexts."""
    return Composition(
        extend(prefill_rows, num_tokens, prefix).prefill,
        decode(decode_rows, context).decode_contexts,
    )


def _all_kinds(limits: GridLimits) -> Iterator[Leveled]:
    contexts = _up_to(limits.max_context, _CONTEXTS)
    decode_rows = _up_to(limits.max_rows, _DECODE_ROWS)
    yield from _grid_points(decode, (decode_rows, contexts), limits)
    for uneven in (spread, straggler):
        yield from _grid_points(uneven, (_UNEVEN_ROWS, _UNEVEN_CONTEXTS), limits)
    tokens = _up_to(limits.max_context, _NEW_TOKENS)
    # A prefix has full pages only, and leaves room for new tokens.
    longest_prefix = limits.max_context * 3 // 4 // limits.page_size * limits.page_size
    prefixes = _up_to(longest_prefix, _PREFIXES)
    few_prefixes = _up_to(longest_prefix, _FEW_PREFIXES)
    yield from _grid_points(partial(extend, 1), (tokens, prefixes), limits)
    for num_rows in _PREFILL_ROWS:
        axes = ([total for total in _SPLIT_TOKENS if total >= num_rows], few_prefixes)
        yield from _grid_points(partial(extend, num_rows), axes, limits)
    mixed_contexts = _up_to(limits.max_context, _MIXED_CONTEXTS)
    # One of the `max_rows` rows is the prefill row.
    decode_rows = _up_to(max(limits.max_rows - 1, 1), _MIXED_DECODE_ROWS)
    mixed_axes = (_MIXED_TOKENS, decode_rows, few_prefixes, mixed_contexts)
    yield from _grid_points(partial(mixed, 1), mixed_axes, limits)
    yield from _grid_points(partial(mixed, _MIXED_PREFILL_ROWS), _MIXED_FEW, limits)


def _grid_points(
    build: Build, axes: Sequence[Sequence[int]], limits: GridLimits, chosen: tuple[int, ...] = ()
) -> Iterator[Leveled]:
    """All compositions of a grid that the limits allow, each with its round.

    `chosen` has the values of the earlier axes. The next axis keeps only the values that the limits
    allow together with these. For example, if 64 rows are chosen, the axis of contexts ends at the
    longest context that fits 64 rows, so this context is measured in round 0.
    """
    if not axes:
        yield 0, build(*chosen)
        return
    least = tuple(axis[0] for axis in axes[1:])
    values = [value for value in axes[0] if limits.allow(build(*chosen, value, *least))]
    for value, level in zip(values, levels(len(values)), strict=True):
        for inner_level, composition in _grid_points(build, axes[1:], limits, (*chosen, value)):
            yield max(level, inner_level), composition


def levels(num_values: int) -> list[int]:
    """The round of each value of an axis: 0 for its ends, 1 for the middle, 2 for the quarters."""
    known = dict.fromkeys({0, num_values - 1}, 0) if num_values else {}
    level = 0
    while len(known) < num_values:
        level += 1
        for low, high in pairwise(sorted(known)):
            if high - low > 1:
                known[(low + high) // 2] = level
    return [known[place] for place in range(num_values)]


def _shares(total: int, num_parts: int) -> list[int]:
    """Divide a total into parts that differ by at most 1."""
    return [
        total * (part + 1) // num_parts - total * part // num_parts for part in range(num_parts)
    ]


def _up_to(last: int, values: Sequence[int]) -> list[int]:
    """The values below `last`, then `last` itself."""
    return [*(value for value in values if value < last), last]
