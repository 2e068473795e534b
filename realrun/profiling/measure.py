"""Measures one step of a given composition on a warm runner."""

import time
from functools import partial

import numpy as np
import torch

from realrun.batch_plan import Int32s, plan_batch
from realrun.profiling.composition import Composition
from realrun.profiling.grid_run import Measurement
from realrun.step_work import StepWork, step_inputs
from realrun.warm_runner import WarmRunner


class StepMeter:
    """Runs single steps with random tokens, on pages in random order.

    The queue is empty when a step is launched, and its result is taken before the next launch. So
    on a GPU `forward_ns` includes the wait for the first kernel launch. In a real run with overlap
    scheduling this wait is hidden, and steps follow each other more closely.
    """

    def __init__(self, warm: WarmRunner, *, max_rows: int, seed: int) -> None:
        """Fill the pages with random numbers, because a GPU multiplies zeros faster.

        Args:
            warm: a warm runner.
            max_rows: largest number of rows of a step.
            seed: seed of the tokens, the order of pages and their contents.
        """
        self._runner = warm.runner
        self._stream = warm.stream
        self._rng = np.random.default_rng(seed)
        # In random order, as in a pool that has been in use: neighbouring pages would be faster.
        self._page_ids = self._rng.permutation(warm.runner.kv.num_pages).astype(np.int32)
        device = warm.runner.model.device
        self._last_tokens = torch.zeros(max_rows, dtype=torch.int64, device=device)
        generator = torch.Generator(device).manual_seed(seed)
        for layer in warm.runner.kv.layers:
            self._stream.prepare(partial(layer.normal_, generator=generator))
        self._stream.synchronise()

    def __call__(self, composition: Composition) -> Measurement:
        """Run the step twice and time the second.

        Raises:
            RuntimeError: memory ran out, or torch or the attention backend refused the step.
        """
        table = self._page_table(composition)
        self._run(composition, table)
        return self._run(composition, table)

    def _run(self, composition: Composition, table: Int32s) -> Measurement:
        token_ids = self._rng.integers(
            self._runner.model.vocab_size, size=composition.num_new_tokens
        )
        begin_ns = time.perf_counter_ns()
        query_lens = np.array(composition.query_lens, dtype=np.int32)
        plan = plan_batch(
            page_table=table,
            query_lens=query_lens,
            kv_lens=np.array(composition.kv_lens, dtype=np.int32),
            samples=np.ones(len(table), dtype=np.bool_),
            page_size=self._runner.kv.page_size,
        )
        rows = np.arange(len(table))
        slots = np.repeat(rows, query_lens)
        work = self._stream.prepare(
            lambda: StepWork(
                self._runner,
                self._runner.prepare(plan),
                step_inputs(token_ids, slots, rows, self._runner.model.device),
                self._last_tokens,
            )
        )
        planned_ns = time.perf_counter_ns()
        submitted = self._stream.submit(work)
        launched_ns = time.perf_counter_ns()
        submitted.result()
        known_ns = time.perf_counter_ns()
        return Measurement(
            forward_ns=max(submitted.forward_ns, 1),
            plan_ns=planned_ns - begin_ns,
            launch_ns=launched_ns - planned_ns,
            sample_ns=work.sample_ns,
            read_back_ns=max(known_ns - max(submitted.end_ns, launched_ns), 0),
            padded_rows=self._runner.padded_rows(plan),
        )

    def _page_table(self, composition: Composition) -> Int32s:
        """Page ids [num_rows, pages of the longest row]; rows share no page."""
        page_size = self._runner.kv.page_size
        counts = [-(-length // page_size) for length in composition.kv_lens]
        first = int(self._rng.integers(len(self._page_ids)))
        places = (np.arange(sum(counts)) + first) % len(self._page_ids)
        table = np.zeros((len(counts), max(counts)), dtype=np.int32)
        table[np.arange(max(counts)) < np.array(counts)[:, None]] = self._page_ids[places]
        return table
