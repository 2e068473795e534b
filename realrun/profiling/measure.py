"""Measures one step of a given composition on a warm runner."""

import time
from functools import partial

import numpy as np
import torch

from realrun.batches.batch_plan import Int32s, plan_batch
from realrun.profiling.composition import Composition
from realrun.profiling.grid_run import Measurement
from realrun.runner.warm_runner import WarmRunner
from realrun.server.step_work import StepWork, step_inputs

# Before a measured step a GPU is kept busy for this multiple of the composition's longest launch so
# far, and for _LEAST_BUSY_NS more. A step whose launch takes longer still is measured again.
_LAUNCH_MARGIN = 1.5
_LEAST_BUSY_NS = 200_000
_MOST_BUSY_NS = 200_000_000
_TRIES = 3


class StepMeter:
    """Runs single steps with random tokens, on pages in random order.

    The result of a step is taken before the next launch. On a GPU a kernel that only waits runs
    before the step, until the host has launched all of it:

        host    | launch of the step ........|
        GPU     | kept busy .....................| the step |
                                                 |forward_ns|

    So `forward_ns` is what the GPU itself needs, and `launch_ns` what the host needs. If the GPU
    were idle, both would run at the same time, and the slower one would decide.
    """

    def __init__(self, warm: WarmRunner, *, max_rows: int, seed: int) -> None:
        """Fill the pages with random numbers, because a GPU multiplies zeros faster.

        `max_rows` is the largest number of rows of a step; `seed` that of the tokens, the order of
        pages and their contents.
        """
        self._runner = warm.runner
        self._stream = warm.stream
        self._rng = np.random.default_rng(seed)
        # In random order, as in a pool that has been in use: neighbouring pages would be faster.
        self._page_ids = self._rng.permutation(warm.runner.kv.num_pages).astype(np.int32)
        self._launches_ns: dict[Composition, int] = {}
        device = warm.runner.model.device
        self._last_tokens = torch.zeros(max_rows, dtype=torch.int64, device=device)
        generator = torch.Generator(device).manual_seed(seed)
        for layer in warm.runner.kv.layers:
            self._stream.prepare(partial(layer.normal_, generator=generator))
        self._stream.synchronise()

    def __call__(self, composition: Composition) -> Measurement:
        """Run the step and time it.

        A composition that comes for the first time runs once before that, so that nothing is
        loaded or allocated in the measured step.

        Raises:
            RuntimeError: memory ran out, or torch or the attention backend refused the step.
        """
        table = self._page_table(composition)
        launch_ns = self._launches_ns.get(composition)
        if launch_ns is None:
            launch_ns = self._run(composition, table, _LEAST_BUSY_NS)[0].launch_ns
        for _ in range(_TRIES):
            busy_ns = min(round(launch_ns * _LAUNCH_MARGIN) + _LEAST_BUSY_NS, _MOST_BUSY_NS)
            measured, was_hidden = self._run(composition, table, busy_ns)
            launch_ns = max(launch_ns, measured.launch_ns)
            if was_hidden:
                break
        self._launches_ns[composition] = launch_ns
        return measured

    def _run(
        self, composition: Composition, table: Int32s, busy_ns: int
    ) -> tuple[Measurement, bool]:
        """Run the step once; also returns whether its launch ended before the GPU began it."""
        token_ids = self._rng.integers(
            self._runner.model.shape.vocab_size, size=composition.num_new_tokens
        )
        begin_ns = time.perf_counter_ns()
        query_lens = np.array(composition.query_lens, dtype=np.int32)
        plan = plan_batch(
            page_table=table,
            query_lens=query_lens,
            kv_lens=np.array(composition.kv_lens, dtype=np.int32),
            samples=np.ones(len(table), dtype=np.int64),
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
        submitted = self._stream.submit(work, busy_ns=busy_ns)
        launched_ns = time.perf_counter_ns()
        submitted.result()
        known_ns = time.perf_counter_ns()
        measured = Measurement(
            forward_ns=max(submitted.forward_ns, 1),
            plan_ns=planned_ns - begin_ns,
            launch_ns=launched_ns - planned_ns,
            sample_ns=work.sample_ns,
            read_back_ns=max(known_ns - max(submitted.end_ns, launched_ns), 0),
            padded_rows=self._runner.padded_rows(plan),
        )
        is_cpu = self._runner.model.device.type == "cpu"
        return measured, is_cpu or launched_ns <= submitted.start_ns

    def _page_table(self, composition: Composition) -> Int32s:
        """Page ids [num_rows, pages of the longest row]; rows share no page."""
        page_size = self._runner.kv.page_size
        counts = [-(-length // page_size) for length in composition.kv_lens]
        first = int(self._rng.integers(len(self._page_ids)))
        places = (np.arange(sum(counts)) + first) % len(self._page_ids)
        table = np.zeros((len(counts), max(counts)), dtype=np.int32)
        table[np.arange(max(counts)) < np.array(counts)[:, None]] = self._page_ids[places]
        return table
