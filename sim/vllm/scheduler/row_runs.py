"""Many equal decode steps of rows that are decided one by one, each with blocks of its own.

Of a row that gets one token in each step, the blocks change in few steps only: where its last block
is full, and where a window, a chunk or a state leaves a block behind. These steps are made one
after the other, in order, row by row as in a pass over the running requests. All others only count
on.
"""

from collections.abc import Sequence

from sim.engine.decode_run import PageDemand
from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.config import VllmConfig
from sim.vllm.request import VllmRequest
from sim.vllm.scheduler.running_pass import RunningPass


class RowRuns:
    """Repeats the decode steps of one server that goes row by row.

    Attributes:
        goes_on: steps can be repeated.
    """

    def __init__(self, config: VllmConfig, memory: KVCacheCoordinator, steps: RunningPass) -> None:
        self._memory = memory
        self._steps = steps
        # Under async scheduling a decision does not know the token in flight.
        self._num_in_flight = int(config.async_scheduling)
        size = memory.page_size
        shift = self._num_in_flight if config.rules.keeps_blocks_in_flight else 0
        # The blocks of a row with n tokens in KV may change where n divided by the first number
        # leaves the second one.
        self._changes = [(size, 0), (size, size - 1 + self._num_in_flight)]
        self._changes += [(period, rest + shift) for period, rest in memory.skip_periods()]
        has_one_token = config.speculation is None and config.micro_batches == 1
        # Outputs are not offered to CPU memory here.
        self.goes_on = has_one_token and config.offload is None

    def num_affordable(self, rows: Sequence[VllmRequest], most: int) -> int:
        """How many steps, at most `most`, find blocks even if none is left behind.

        None, if tokens of a row are in flight that it has lost.
        """
        if any(row.num_stale > 0 for row in rows):
            return 0
        size, num_groups = self._memory.page_size, len(self._memory.managers)
        cycle = [0] * size
        for row in rows:
            cycle[-row.seq_len % size] += 1
        free = self._memory.num_free_pages // num_groups
        return PageDemand(cycle, len(rows)).num_affordable(most, free, spares=False)

    def take(self, rows: Sequence[VllmRequest], num_steps: int) -> list[int]:
        """Make the steps; returns the blocks that each has taken, less those that it has freed."""
        memory, num_decisions = self._memory, self._memory.num_decisions
        before = [(row.seq_len, row.num_generated, row.num_in_flight) for row in rows]
        taken, num_free = [0] * num_steps, memory.num_free_pages
        for step, number in self._changing(rows, num_steps):
            # A decision counts twice, see `VllmScheduler.decide`.
            memory.num_decisions = num_decisions + 2 * step + 1
            row, (seq_len, num_generated, _) = rows[number], before[number]
            row.seq_len = seq_len + step
            row.num_generated = num_generated + step + 1 - self._num_in_flight
            row.num_in_flight = self._num_in_flight
            self._steps.decode_again(row)
            taken[step] += num_free - memory.num_free_pages
            num_free = memory.num_free_pages
        memory.num_decisions = num_decisions + 2 * num_steps
        for row, (seq_len, num_generated, num_in_flight) in zip(rows, before, strict=True):
            row.seq_len, row.num_generated = seq_len + num_steps, num_generated + num_steps
            row.num_in_flight = num_in_flight
            if self._num_in_flight:
                row.next_decode_step += num_steps
        return taken

    def _changing(self, rows: Sequence[VllmRequest], num_steps: int) -> list[tuple[int, int]]:
        """The steps in which blocks of rows may change, each with the place of the row.

        The first is one: when the step in flight was decided, a prompt was perhaps in flight.
        """
        changing = {(0, number) for number in range(len(rows))} | {
            (step, number)
            for number, row in enumerate(rows)
            for period, rest in self._changes
            for step in range((rest - row.seq_len) % period, num_steps, period)
        }
        return sorted(changing)
