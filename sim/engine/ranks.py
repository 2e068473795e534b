"""What the ranks of a group have in common: which rank a request goes to, and running without work.

A replica with attention data parallelism is a group of ranks. Each rank has its own engine, pool
and queue, and decides for itself. All ranks run each step together: it starts when all are ready
and lasts as long as the slowest. A rank without work runs along. The rest depends on the family.
"""

import sys
from collections.abc import Sequence
from typing import Any

from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.engine.core import EngineCore
from sim.engine.records import Decided
from sim.engine.scheduler import RankTalk

# What each rank launched in a step; None: it ran along without work.
RankModes = Sequence[ForwardMode | None]


class RankRules:
    """Base class: the rules of a family for the ranks of one group.

    Attributes:
        idle_tokens: new tokens of the batch that a rank without work runs.
        idles_between: if no rank launches anything while a step with work is in flight, the ranks
            run a step without work after it (if `idle` says so), and decide at once what follows.
    """

    idle_tokens = 0

    def __init__(self, engines: Sequence[EngineCore]) -> None:
        self.engines = engines
        self.idles_between = False

    def choose(self, num_prompt_tokens: int, now_ns: int, front_end: int = 0, rid: str = "") -> int:
        """The rank of the next request, which comes from this process of the front end."""
        raise NotImplementedError

    def sent(self, rank: int, rid: str, front_end: int) -> None:
        """A request was sent to the rank that `choose` chose for it."""

    def ended(self, rank: int, rids: Sequence[str]) -> None:
        """Requests of a rank are over."""

    def decided(self, now_ns: int) -> None:
        """All ranks have decided a step, under overlap scheduling, and no other is in flight."""

    def processing(self, modes: RankModes) -> None:
        """The results of a step are known, and are taken in next."""

    def processed(self, now_ns: int, num_steps: int) -> None:
        """The results of a step are taken in, and those of the steps passed in one go with it."""

    def passed(self, known_ns: Int64) -> None:
        """Of decode steps that are passed in one go, these results are known by now.

        This is asked before `choose`, and when all are passed; until then the engines are as at the
        beginning. `known_ns`: when each result was known, that of the step before them first; int64
        ns, shape [num_results].
        """

    def idle(self, now_ns: int) -> bool:
        """No rank has anything to launch; with `idles_between`, a step may still be in flight.

        Returns whether the ranks run a step without work all the same: they do not if they have
        stopped.
        """
        return False


# What a rank that asks the others adds to the stack, with room to spare.
_FRAMES_OF_RANK = 30


class Meeting(RankTalk):
    """The ranks of a group, which decide a step together.

    A rank may need to know in the middle of its decision what the others tell (`gather`). Then the
    next rank begins to decide, inside this call, and so on. The last one finds that all have told,
    and goes on; then the one before it, back to the first.
    """

    def __init__(self, engines: Sequence[EngineCore]) -> None:
        self._engines = engines
        self._told: list[Any] = [None] * len(engines)
        self._decided: list[Decided] = []
        self._num_asked = 0
        self._now_ns = 0
        for rank, engine in enumerate(engines):
            engine.in_group = True
            engine.scheduler.join_ranks(rank, self)

    def decide(self, now_ns: int, *, in_flight: bool) -> Sequence[Decided]:
        """What each rank launches; `in_flight`: an earlier step of the group is in flight."""
        engines = self._engines
        self._now_ns, self._num_asked = now_ns, 0
        self._decided = [Decided(None, None)] * len(engines)
        self._decide_others()
        self._go_on(now_ns)
        self._tell_all(in_flight=in_flight)
        return self._decided

    def gather(self, rank: int, told: Any) -> Sequence[Any]:
        self._told[rank] = told
        most = len(self._engines) * _FRAMES_OF_RANK
        if rank == 0 and most > sys.getrecursionlimit() // 2:
            sys.setrecursionlimit(2 * most)
        self._decide_others()
        return self._told

    def _decide_others(self) -> None:
        """Let the ranks that have not been asked yet decide."""
        while self._num_asked < len(self._engines):
            rank = self._num_asked
            self._num_asked += 1
            self._decided[rank] = self._engines[rank].begin_step(self._now_ns)

    def _go_on(self, now_ns: int) -> None:
        """If any rank prefills, those that waited for this go without a step."""
        prefills = any(
            each.batch is not None and each.batch.mode is not ForwardMode.DECODE
            for each in self._decided
        )
        for rank, engine in enumerate(self._engines):
            if engine.scheduler.awaits_ranks:
                self._decided[rank] = engine.go_on(now_ns, others_prefill=prefills)

    def _tell_all(self, *, in_flight: bool) -> None:
        """Tell each rank what all have decided, as far as its next decision depends on it."""
        modes = [each.batch.mode for each in self._decided if each.batch is not None]
        mode = None
        if modes:
            decodes = all(each is ForwardMode.DECODE for each in modes)
            mode = ForwardMode.DECODE if decodes else ForwardMode.EXTEND
        for engine in self._engines:
            engine.input_queue.note_decision(mode, is_idle=mode is None and not in_flight)
            engine.scheduler.note_group(modes)
