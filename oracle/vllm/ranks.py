"""Ranks of data parallelism: an engine for each, on one virtual clock.

The engines, their schedulers, and `DPEngineCoreProc`'s own rules run: when prefills wait
(`_should_throttle_prefills`), and when ranks ask each other whether any has work
(`_has_global_unfinished_reqs`). Replaced are the processes. All ranks decide at the same times,
and a forward pass starts when all have decided and lasts as long as the slowest. A row of the
workload says which rank the front end sends it to.
"""

from types import SimpleNamespace
from typing import Any

from vllm.config import ParallelConfig
from vllm.v1.engine.core import DPEngineCoreProc

from oracle.vllm.engine import Engine
from oracle.vllm.oracle import MAX_IDLE_DECISIONS, Flight, Oracle
from oracle.vllm.together import transfer_times_ns

Line = dict[str, Any]


class RankEngine(Engine):
    """The engine of one rank: what its loop asks between two steps is vLLM's."""

    def __init__(self, group: "Ranks", scheduler: Any, executor: Any, config: Line) -> None:
        super().__init__(scheduler, executor, config)
        self.prefill_schedule_interval = config.get("prefill_schedule_interval", 1)
        self.dp_sync_interval = ParallelConfig().dp_sync_interval
        self.step_counter = 0
        self.pending_pause = False
        self.dp_group = None
        parallel = SimpleNamespace(sync_dp_state=lambda _group, **_: (group.has_work, False))
        self.vllm_config = SimpleNamespace(parallel_config=parallel)

    _should_throttle_prefills = DPEngineCoreProc._should_throttle_prefills
    has_work_anywhere = DPEngineCoreProc._has_global_unfinished_reqs


class Rank(Oracle):
    """One rank: its step times are those of the group."""

    def __init__(self, group: "Ranks", number: int, config: Line, rows: list[Line]) -> None:
        self.group = group
        super().__init__(config, rows, group.disks)
        self.number = number
        self.engine = RankEngine(group, self.scheduler, self, config)
        # What it has of the group's next step, and how long that takes alone.
        self.part: tuple[Flight, Line] | None = None
        self.part_ns = 0
        self.decided: Any = None

    @property
    def now_ns(self) -> int:
        return self.group.now_ns

    @now_ns.setter
    def now_ns(self, time_ns: int) -> None:
        self.group.now_ns = time_ns

    def turn(self) -> None:
        """One round of the engine's loop."""
        for outputs in self.engine.next_outputs().values():
            for result in outputs.outputs:
                self._note(self.scripts[result.request_id], result)

    def end(self, flight: Flight) -> Any:
        """A rank takes in at once what it knows at once; before a wait, the others decide."""
        if flight.decided.num_scheduled_tokens or flight.end_ns > self.now_ns:
            self.group.enter_next()
        return super().end(flight)

    def _launch(self, decided: Any) -> Flight:
        now_ns = self.now_ns
        self.stage_free_ns = [self.group._free_ns]
        flight = super()._launch(decided)
        # The ranks decide at the same time; what one waits for holds up the step of all.
        self.now_ns = now_ns
        if decided.num_scheduled_tokens:
            self.part = flight, self.steps[-1]
        return flight

    def _launched(self, decided: Any) -> None:
        """Loads begin when the step of the group ends, which is known when all have decided."""
        if decided.num_scheduled_tokens:
            self.decided = decided
        else:
            super()._launched(decided)

    def _end_ns(self, start_ns: int, step_ns: int) -> int:
        self.part_ns = step_ns
        return start_ns


class Ranks:
    """All ranks of a case."""

    def __init__(self, config: Line, rows: list[Line]) -> None:
        self._rows = rows
        self.now_ns = self._free_ns = 0
        # All ranks have the same settings, so the same directories below `root_dir`.
        self.disks: Any = None
        self._ranks: list[Rank] = []
        for number in range(config["ranks"]):
            mine = [row for row in rows if row["rank"] == number]
            self._ranks.append(Rank(self, number, config, mine))
            tiers = self._ranks[0].tiers
            self.disks = None if tiers is None else tiers.disks
        # A step without work decodes one token.
        self._ranks[0].decoding.add("")
        self._idle_ns = self._ranks[0]._step_ns([["", 0, 1]])
        self._num_entered = self._num_steps = 0
        self._are_running, self._are_idle = False, True
        self._overlap = config["async_scheduling"]

    @property
    def _is_stuck(self) -> bool:
        """No rank with requests has got a token for long."""
        busy = [rank for rank in self._ranks if rank.scheduler.has_requests()]
        return min([rank.num_idle_decisions for rank in busy], default=0) > MAX_IDLE_DECISIONS

    @property
    def has_work(self) -> bool:
        return any(rank.scheduler.has_unfinished_requests() for rank in self._ranks)

    def run(self) -> list[Line]:
        """Every step of every rank, then every request."""
        while not self._is_stuck and (self._are_running or self._wait()):
            self._round()
        steps = [line for rank in self._ranks for line in rank.steps]
        steps.sort(key=lambda line: (line["step"], line["rank"]))
        scripts = {rid: script for rank in self._ranks for rid, script in rank.scripts.items()}
        return [*steps, *(scripts[row["rid"]].line() for row in self._rows)]

    def _wait(self) -> bool:
        """Move the clock to the next arrival, which starts all ranks; False: there is none.

        A rank may have something to do before that, for example a copy.
        """
        if any(rank.sent or rank.made_progress for rank in self._ranks):
            return True
        times_ns = [rank.to_come[0].arrival_ns for rank in self._ranks if rank.to_come]
        for rank in self._ranks:
            times_ns += transfer_times_ns(rank.scheduler, rank.workers, rank.tiers)
        if times_ns:
            self.now_ns = max(self.now_ns, min(times_ns))
        return bool(times_ns)

    def _round(self) -> None:
        """One turn of the loops of all ranks (`run_busy_loop`)."""
        # When they start again, no step is under way.
        self._are_idle |= not self._are_running
        for rank in self._ranks:
            rank.made_progress = False
            # The front end starts all ranks with a request, even if its client leaves at once.
            self._are_running |= rank._add_arrivals()
            rank.preempted.clear()
        self._are_running |= self.has_work
        if not self._are_running:
            for rank in self._ranks:
                if rank.scheduler.has_requests():
                    rank.turn()
            return
        self._num_entered, num_steps = 0, self._num_steps
        self.enter_next()
        if self._num_steps > num_steps:
            self._are_idle = False
        else:
            self._launch(self._idle_ns)
            # Steps without work follow one another.
            if self._are_idle or not self._overlap:
                self.now_ns = self._free_ns
            self._are_idle = True
        answers = [rank.engine.has_work_anywhere(self.has_work) for rank in self._ranks]
        self._are_running = answers[0]
        if not self._are_running:
            for rank in self._ranks:
                rank.engine.step_counter = 0
                # A rank waits for its last step before it waits for requests.
                for _ in range(len(rank.engine.batch_queue)):
                    rank.turn()

    def enter_next(self) -> None:
        """Let the ranks that have not decided yet decide; the last one launches the step.

        A rank that waits for a result lets the others decide first.
        """
        if self._num_entered == len(self._ranks):
            parts = [rank.part_ns for rank in self._ranks if rank.part is not None]
            if parts:
                self._launch(max(parts))
            return
        rank = self._ranks[self._num_entered]
        self._num_entered += 1
        rank.turn()
        self.enter_next()

    def _launch(self, step_ns: int) -> None:
        self.now_ns = max(self.now_ns, *(rank.held_ns for rank in self._ranks))
        start_ns = max(self.now_ns, self._free_ns)
        self._free_ns = start_ns + step_ns
        for rank in self._ranks:
            if rank.decided is not None:
                rank.workers.launched(rank.decided, self.now_ns, self._free_ns)
                rank.decided = None
            if rank.part is not None:
                flight, line = rank.part
                flight.end_ns = self._free_ns
                times = {"t_start_ns": start_ns, "t_end_ns": self._free_ns}
                line |= {"step": self._num_steps, "rank": rank.number, **times}
                rank.part = None
        self._num_steps += 1
