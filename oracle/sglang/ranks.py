"""Ranks of DP attention: a scheduler of SGLang for each, on one virtual clock.

What a server's ranks gather from each other they gather here in one process: their next batches in
`SchedulerDPAttnAdapter` (`exchange_sync_rows`), and what each could prefill in the prefill delayer
(`all_gather_single`). So all ranks decide at the same times, and a step lasts as long as that of
the slowest. Requests go to the ranks in turn, as `round_robin_scheduler` of
managers/data_parallel_controller.py deals them.
"""

import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers import prefill_delayer
from sglang.srt.managers.scheduler_components import dp_attn
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.runtime_context import get_parallel

from oracle.sglang.driver import Driver, Row, in_order
from oracle.sglang.ending import error_of
from oracle.sglang.loops import run_normal, run_overlap
from sim.installed.inside.sglang.clock import VirtualClock
from sim.installed.inside.sglang.memory import use_device
from sim.installed.inside.sglang.settings import Config


class Gather:
    """Lets ranks take turns, each in a thread of its own, until all wait for the same gather.

    One of them runs at a time: from one gather to the next, or to its end. Python's random numbers
    and the device that copies are those of its own process.

    Attributes:
        number: of the ranks.
        begins: called when a rank's turn begins, by rank.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.begins: list[Callable[[], None]] = []
        self._turns = [threading.Semaphore(0) for _ in range(number)]
        self._random = [random.getstate()] * number
        self._rank = 0
        self._gathered: list[list[Any]] = [[] for _ in range(number)]
        self._error: BaseException | None = None

    def run(self, programs: list[Callable[[], None]]) -> None:
        """Run a program for each rank; raises the first error of one."""
        threads = [
            threading.Thread(target=self._run_one, args=(rank, program), daemon=True)
            for rank, program in enumerate(programs)
        ]
        for thread in threads:
            thread.start()
        self._turns[0].release()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _run_one(self, rank: int, program: Callable[[], None]) -> None:
        self._turns[rank].acquire()
        try:
            self._begin_turn(rank)
            program()
        except BaseException as error:  # the others must not wait for this rank
            self._error = self._error or error
        self._end_turn(rank)

    def all(self, mine: Any) -> list[Any]:
        """What all ranks give to the same call."""
        rank = self._rank
        place = len(self._gathered[rank])
        self._gathered[rank].append(mine)
        self._end_turn(rank)
        self._turns[rank].acquire()
        self._begin_turn(rank)
        return [gathered[place] for gathered in self._gathered]

    def all_rows(self, out: torch.Tensor, mine: torch.Tensor, **_: Any) -> None:
        """As `torch.distributed.all_gather_into_tensor`."""
        out.copy_(torch.cat(self.all(mine.clone())))

    def _begin_turn(self, rank: int) -> None:
        if self._error is not None:
            raise RuntimeError("another rank has failed")
        self._rank = rank
        random.setstate(self._random[rank])
        self.begins[rank]()

    def _end_turn(self, rank: int) -> None:
        self._random[rank] = random.getstate()
        self._turns[(rank + 1) % self.number].release()


class Rank(Driver):
    """One rank: its step times are those of all ranks, and it runs along without work."""

    def __init__(
        self,
        config: Config,
        arrivals: list[tuple[int, Row]],
        clock: VirtualClock,
        group: Gather,
        number: int,
    ) -> None:
        self._group = group
        self._number = number
        super().__init__(config, arrivals, clock)
        server = self.s
        server.require_mlp_sync = server.attn_dp_enabled = True
        model = SimpleNamespace(
            spec_algorithm=server.spec_algorithm,
            model_config=server.model_config,
            prefill_cuda_graph_runner=None,
        )
        server.dp_attn_adapter = dp_attn.SchedulerDPAttnAdapter(
            model_runner=model,
            req_to_token_pool=server.req_to_token_pool,
            token_to_kv_pool_allocator=server.token_to_kv_pool_allocator,
            tree_cache=server.tree_cache,
            offload_tags=set(),
            model_config=server.model_config,
            enable_overlap=server.enable_overlap,
            spec_algorithm=server.spec_algorithm,
            get_require_mlp_sync=lambda: True,
        )

    def launch(self, batch: Any, queue_before: int, at_s: float) -> tuple[Any, Row]:
        if batch.forward_mode.is_idle():
            result, row = GenerationBatchResult(logits_output=None), {"t_end": at_s}
            self.rows.append(row)
        else:
            result, row = super().launch(batch, queue_before, at_s)
            row["rank"] = self._number
        row["t_end"] = max(self._group.all(row["t_end"]))
        if self.host:
            self.host.device.forward.free_s = row["t_end"]
        return result, row

    def begin_turn(self) -> None:
        if self.host:
            use_device(self.host.device, self.cfg)

    def thread_s(self, now_s: float) -> float:
        return max(self._group.all(super().thread_s(now_s)))

    def waits_until(self, at_s: float | None) -> float | None:
        return min((time for time in self._group.all(at_s) if time is not None), default=None)

    def steps(self) -> list[Row]:
        """Those in which it had work."""
        return [row for row in self.rows if "rank" in row]


def run_ranks(config: Config, workload: list[Row]) -> tuple[list[Row], list[Row], str]:
    """Every step of every rank, every request, and the error with which SGLang ends."""
    number = config["ranks"]
    group = Gather(number)
    _join(group)
    clock = VirtualClock()
    clock.install()
    dealt = _deal(config, in_order(workload))
    ranks = [Rank(config, rows, clock, group, each) for each, rows in enumerate(dealt)]
    group.begins = [rank.begin_turn for rank in ranks]
    loop = run_overlap if config["enable_overlap"] else run_normal
    error = error_of(lambda: group.run([lambda rank=rank: loop(rank) for rank in ranks]))
    steps, requests = [], []
    for rank in ranks:
        steps += rank.steps()
        requests += rank.results()[1]
    return sorted(steps, key=lambda step: (step["step"], step["rank"])), requests, error


def _join(group: Gather) -> None:
    """Let SGLang's ranks find each other here."""
    get_parallel().override_permanently(
        num_dp_ranks=group.number, attn_dp_enabled=True, attn_tp_size=1, attn_cp_size=1
    )
    everyone = torch.ones(group.number, dtype=torch.int64)
    tensor_parallel = SimpleNamespace(
        cpu_group=None, device_group=None, device="cpu",
        active_ranks_cpu=everyone, active_ranks=everyone,
    )  # fmt: skip
    parallel = SimpleNamespace(
        num_dp_ranks=group.number, attn_dp_enabled=True, attn_tp_size=1, attn_cp_size=1,
        tp_group=tensor_parallel, dwdp_size=1,
    )  # fmt: skip
    for module in (prefill_delayer, dp_attn):
        module.get_parallel = lambda: parallel
    prefill_delayer.all_gather_single = dp_attn.exchange_sync_rows = group.all_rows


def _deal(config: Config, arrivals: list[tuple[int, Row]]) -> list[list[tuple[int, Row]]]:
    """The rows of each rank. Prompts that the front end refuses are not dealt."""
    dealt: list[list[tuple[int, Row]]] = [[] for _ in range(config["ranks"])]
    turn = 0
    for number, row in arrivals:
        is_dealt = sum(n for _, n in row["segments"]) < config["context_len"]
        dealt[turn if is_dealt else 0].append((number, row))
        turn = (turn + is_dealt) % config["ranks"]
    return dealt
