"""Times decode steps with drafts on a GPU, in a graph and without: `python -m bench.draft_steps`.

A graph has one row for each token, so it reads a row's K and V again for each of its drafts.
Without a graph they are read once, but the host launches every kernel.
"""

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from realrun.batches.batch_plan import Int32s, plan_batch
from realrun.runner import model_runner
from realrun.runner.warm_runner import RunnerOptions, WarmRunner, load_with_options, warm_runner

_DRAFTS = 4
_ROWS = (1, 4, 8, 16, 32, 48)
_CONTEXTS = (256, 1024, 4096, 8192, 16384, 32768, 65536)
_PAGE_SIZE = 16
_WARM_UPS, _REPEATS = 3, 9


def measure(warm: WarmRunner, *, rows: int, context: int, seed: int) -> dict[str, float]:
    """Median times in ms of a step: of host and GPU together, and of the GPU alone."""
    rng = np.random.default_rng(seed)
    num_pages = -(-context // _PAGE_SIZE)
    order = rng.permutation(warm.runner.kv.num_pages).astype(np.int32)
    table = order[np.arange(rows * num_pages) % len(order)].reshape(rows, num_pages)
    result: dict[str, float] = {"rows": rows, "context": context}
    for kind, most_read_again in (("graph", 1 << 60), ("eager", -1)):
        model_runner._MAX_TOKENS_READ_AGAIN = most_read_again
        times = [_run(warm, table, context, rng) for _ in range(_WARM_UPS + _REPEATS)]
        step_ns, gpu_ns, padded_rows = np.median(times[_WARM_UPS:], axis=0)
        result |= {
            f"{kind}_padded": int(padded_rows),
            f"{kind}_ms": round(float(step_ns) / 1e6, 3),
            f"{kind}_gpu_ms": round(float(gpu_ns) / 1e6, 3),
        }
    return result


def _run(
    warm: WarmRunner, table: Int32s, context: int, rng: np.random.Generator
) -> tuple[int, int, int]:
    """One step: ns from its plan to its result, ns on the GPU, rows of the graph."""
    model, rows, num_new = warm.runner.model, len(table), 1 + _DRAFTS
    drawn = rng.integers(model.shape.vocab_size, size=rows * num_new)
    token_ids = torch.from_numpy(drawn).to(model.device)
    warm.stream.synchronise()
    begin_ns = time.perf_counter_ns()
    plan = plan_batch(
        page_table=table,
        query_lens=np.full(rows, num_new, dtype=np.int32),
        kv_lens=np.full(rows, context, dtype=np.int32),
        samples=np.full(rows, num_new, dtype=np.int64),
        page_size=_PAGE_SIZE,
    )
    prepared = warm.stream.prepare(partial(warm.runner.prepare, plan))
    submitted = warm.stream.submit(lambda: warm.runner.forward(prepared, token_ids).argmax(dim=-1))
    submitted.result()
    step_ns = time.perf_counter_ns() - begin_ns
    return step_ns, submitted.forward_ns, warm.runner.padded_rows(plan)


def shapes(most_tokens: int) -> Iterator[tuple[int, int]]:
    """Rows and context of each step that fits into a pool of `most_tokens` tokens."""
    return ((r, c) for r in _ROWS for c in _CONTEXTS if r * c <= most_tokens)


def main() -> None:
    """Measure all shapes, one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--num-pages", type=int, default=24_000)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    options = RunnerOptions()
    model = load_with_options(args.model, options)
    with (
        warm_runner(
            model, options, num_pages=args.num_pages, page_size=_PAGE_SIZE, max_rows=256
        ) as warm,
        args.out.open("w", encoding="utf-8") as file,
    ):
        for seed, (rows, context) in enumerate(shapes(args.num_pages * _PAGE_SIZE)):
            line = measure(warm, rows=rows, context=context, seed=seed)
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
