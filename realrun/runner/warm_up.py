"""Runs some steps before measurements: the first ones are slow, as libraries load and allocate."""

from collections.abc import Sequence

import numpy as np
import torch

from realrun.batches.batch_plan import plan_batch
from realrun.device.streams import DeviceStream
from realrun.runner.model_runner import ModelRunner

_ROUNDS = 3
_PREFILL_TOKENS = (1, 64, 512)
_MIXED_ROWS = 8


def warm_up(runner: ModelRunner, stream: DeviceStream, *, max_rows: int, max_tokens: int) -> None:
    """Run prefill, mixed and decode steps on the scratch page, which belongs to no request.

    Decode steps have up to `max_rows` rows, steps with prefill up to `max_tokens` new tokens.
    """
    longest = min(max_tokens, runner.model.max_positions)
    decodes = [1] * min(_MIXED_ROWS, max_rows)
    for _ in range(_ROUNDS):
        for num_tokens in sorted({min(tokens, longest) for tokens in (*_PREFILL_TOKENS, longest)}):
            _run(runner, stream, [num_tokens])
            _run(runner, stream, [num_tokens, *decodes])
        for num_rows in {1, len(decodes), max_rows}:
            _run(runner, stream, [1] * num_rows)
    stream.synchronise()


def _run(runner: ModelRunner, stream: DeviceStream, query_lens: Sequence[int]) -> None:
    lens = np.array(query_lens, dtype=np.int32)
    page_size = runner.kv.page_size
    num_columns = -(-int(lens.max()) // page_size)
    table = np.full((len(lens), num_columns), runner.kv.scratch_page, dtype=np.int32)
    plan = plan_batch(
        page_table=table,
        query_lens=lens,
        kv_lens=lens,
        samples=np.ones(len(lens), dtype=np.int64),
        page_size=page_size,
    )
    prepared = stream.prepare(lambda: runner.prepare(plan))
    device = runner.model.device
    token_ids = stream.prepare(
        lambda: torch.zeros(plan.num_tokens, dtype=torch.int64, device=device)
    )
    stream.submit(lambda: runner.forward(prepared, token_ids).argmax(dim=-1)).result()
