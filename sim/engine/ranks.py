"""What the ranks of a group have in common: which rank a request goes to, and running without work.

A replica with attention data parallelism is a group of ranks. Each rank has its own engine, pool
and queue, and decides for itself. All ranks run each step together: it starts when all are ready
and lasts as long as the slowest. A rank without work runs along. The rest depends on the family.
"""

from collections.abc import Sequence

from sim.core.batch import Batch, ForwardMode
from sim.engine.core import EngineCore

# What each rank launched in a step; None: it ran along without work.
RankModes = Sequence[ForwardMode | None]


class RankRules:
    """Base class: the rules of a family for the ranks of one group.

    Attributes:
        engines: those of the ranks.
        idle_tokens: new tokens of the batch that a rank without work runs.
        idles_between: if no rank launches anything while a step with work is in flight, the ranks
            run a step without work after it (if `idle` says so), and decide at once what follows.
        needs_single_steps: `processing` must be called for every step, so none may be passed in
            one go.
    """

    idle_tokens = 0

    def __init__(self, engines: Sequence[EngineCore]) -> None:
        self.engines = engines
        self.idles_between = self.needs_single_steps = False

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

    def passing(self, known_ns: int) -> None:
        """Decode steps are passed in one go; the step in flight has its result at `known_ns`."""

    def idle(self, now_ns: int) -> bool:
        """No rank has anything to launch, and no step is in flight.

        Returns:
            Whether the ranks run a step without work all the same.
        """
        return False


def tell_ranks(
    engines: Sequence[EngineCore], batches: Sequence[Batch | None], *, in_flight: bool
) -> None:
    """Tell each rank what all have decided, as far as its next decision depends on it.

    Args:
        engines: those of the ranks.
        batches: what each rank launches; None: nothing.
        in_flight: whether an earlier step of the group is in flight.
    """
    modes = [batch.mode for batch in batches if batch is not None]
    mode = None
    if modes:
        decodes = all(each is ForwardMode.DECODE for each in modes)
        mode = ForwardMode.DECODE if decodes else ForwardMode.EXTEND
    for engine in engines:
        engine.input_queue.note_decision(mode, is_idle=mode is None and not in_flight)
        engine.scheduler.note_group(modes)
