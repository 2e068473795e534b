"""Decode steps of a model with sliding windows: rows give back what has left their windows.

Rule 24 of docs/explanation/sglang.md (SGLang 0.5.23's `ScheduleBatch.maybe_evict_swa`).
"""

from collections.abc import Sequence

from sim.core.errors import InputError
from sim.sglang.cache.window_manager import WindowKVCacheManager
from sim.sglang.request import SglangRequest


def slide_rows(kv: WindowKVCacheManager, rows: Sequence[SglangRequest]) -> None:
    """Before a decode step of these rows, free what has left their windows.

    The first decode step of a row frees nothing: its prefill may still run.
    """
    for row in rows:
        if row.seq_len > row.extend_end:
            num_known = row.num_tokens
            kv.slide_row(row.kv, num_known, num_known)


def slide_rows_many(
    kv: WindowKVCacheManager, rows: Sequence[SglangRequest], num_steps: int, *, overlaps: bool
) -> None:
    """The same for `num_steps` steps at once, of which the last one is in flight now.

    Under overlap, each of them was decided before the result of the one before was known.
    """
    for row in rows:
        last_len = row.num_tokens - overlaps
        kv.slide_row(row.kv, last_len - num_steps + 1, last_len)


def no_window_room(kv: WindowKVCacheManager, request: SglangRequest) -> InputError:
    """The error that a request has no room although nothing runs: SGLang would wait for ever."""
    return InputError(
        f"request {request.rid} of {request.num_tokens} tokens never fits into the"
        f" {kv.window_pool.num_units} tokens of the pool for sliding windows, although nothing"
        " else runs; SGLang would keep it waiting for ever",
        key=("scheduler", "swa_full_tokens_ratio"),
    )
