"""The sizes of a summary's KV pools, in words."""

from collections.abc import Mapping
from typing import Any

from sim.metrics.summary import Summary
from sim.tables.text import number, printable


def kv_pool_lines(summary: Summary) -> list[str]:
    """The size of each KV pool, in the engine's words, and what it follows from."""
    pools = {f"{name}: ": pool for name, pool in summary.get("pools", {}).items()} or {"": summary}
    found = {name: pool["kv_pool"] for name, pool in pools.items() if "kv_pool" in pool}
    return [printable(f"{name}{_pool_in_words(pool)}") for name, pool in found.items()]


def _pool_in_words(pool: Mapping[str, Any]) -> str:
    parts = [f"{pool['pages']:,} pages of {pool['page_size']:,}"]
    if pool["gib_per_gpu"] is not None:
        parts.append(f"{number(pool['gib_per_gpu'])} GiB of each GPU")
    if pool["ranks"] > 1:
        parts.append(f"each of {pool['ranks']} ranks")
    return f"{pool['printed']} ({', '.join(parts)}): {pool['source']}"
