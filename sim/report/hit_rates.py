"""Hit rate against the size of a cache, as a table, sentences and JSON."""

from collections.abc import Mapping
from typing import Any

from sim.tables.table import Column, Table, number
from sim.workload.reuse.curve import HitCurve

# Sizes that find these shares of what an unlimited cache finds; the knee is the one of `KNEE`.
SHARES = (0.5, 0.8, 0.9, 0.95, 0.99)
KNEE = 0.9
_MAX_ROWS = 14
_GIB = 1 << 30


def listed_sizes(curve: HitCurve) -> list[int]:
    """Sizes to list, in blocks: powers of two, up to the first that finds everything."""
    last = max(0, curve.max_blocks - 1).bit_length()
    return [1 << power for power in range(max(0, last - _MAX_ROWS + 1), last + 1)]


def curve_table(curve: HitCurve, bytes_per_token: int | None) -> Table:
    """A row for each listed size; with the bytes of a token's KV, sizes in GiB, too."""
    gib = [] if bytes_per_token is None else [Column("GiB", to_text=number)]
    columns = [
        Column("cache tokens", to_text=number),
        Column("blocks", to_text=number),
        *gib,
        Column("hit rate %", to_text=number),
        Column("of unlimited %", to_text=number),
    ]
    return Table(columns, [[*row.values()] for row in _rows(curve, bytes_per_token)])


def curve_sentences(curve: HitCurve, bytes_per_token: int | None) -> list[str]:
    """What an unlimited cache finds, and where the knee is."""
    most = curve.hit_pct(curve.max_blocks)
    used = (
        f"{curve.num_blocks:,} blocks of {curve.block_size:,} tokens are used,"
        f" {curve.num_different:,} different ones."
    )
    if not curve.max_blocks:
        return [used, "No cache finds anything: no request begins like an earlier one."]
    knee, last = (
        size_text(curve, size, bytes_per_token) for size in (curve.smallest(KNEE), curve.max_blocks)
    )
    return [
        f"{used} An unlimited cache finds {most:.2f} % of the prompts' tokens.",
        f"The knee, {100 * KNEE:.0f} % of that: {knee}. Beyond {last} nothing more is found.",
    ]


def size_text(curve: HitCurve, num_blocks: int, bytes_per_token: int | None) -> str:
    """`1,024 tokens`, and `(0.12 GiB)` if the bytes of a token are known."""
    num_tokens = num_blocks * curve.block_size
    text = f"{num_tokens:,} tokens"
    if bytes_per_token is None:
        return text
    return f"{text} ({number(num_tokens * bytes_per_token / _GIB)} GiB)"


def curve_json(curve: HitCurve, bytes_per_token: int | None) -> dict[str, Any]:
    """The listed sizes, and the smallest that find shares of what an unlimited cache finds."""
    return {
        "block_size": curve.block_size,
        "num_blocks": curve.num_blocks,
        "num_different_blocks": curve.num_different,
        "prompt_tokens": curve.prompt_tokens,
        "bytes_per_token": bytes_per_token,
        "unlimited_hit_pct": curve.hit_pct(curve.max_blocks),
        "max_useful_tokens": curve.max_blocks * curve.block_size,
        "smallest": [
            {"of_unlimited_pct": 100 * share, "tokens": curve.smallest(share) * curve.block_size}
            for share in SHARES
        ],
        "sizes": list(_rows(curve, bytes_per_token)),
    }


def _rows(curve: HitCurve, bytes_per_token: int | None) -> list[Mapping[str, float]]:
    most = curve.hit_pct(curve.max_blocks)
    rows: list[Mapping[str, float]] = []
    for size in listed_sizes(curve):
        num_tokens = size * curve.block_size
        row: dict[str, float] = {"tokens": num_tokens, "blocks": size}
        if bytes_per_token is not None:
            row["gib"] = num_tokens * bytes_per_token / _GIB
        found = curve.hit_pct(size)
        row |= {"hit_pct": found, "of_unlimited_pct": 100 * found / most if most else 0.0}
        rows.append(row)
    return rows
