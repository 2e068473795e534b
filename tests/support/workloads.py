"""Small workloads for tests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt
from sim.engine.executor import OutputScript
from sim.workload.workload import Phase, ScriptedRequest, Turn


@dataclass(frozen=True)
class ListWorkload:
    """A workload given as a list of requests."""

    requests: Sequence[ScriptedRequest] = ()
    turns: Sequence[Sequence[Turn]] = ()
    benchmark: Sequence[Phase] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_requests(self) -> int:
        of_phases = sum(len(phase.turns) for phase in self.benchmark)
        return len(self.requests) + sum(len(turns) for turns in self.turns) + of_phases

    def arrivals(self) -> Iterator[ScriptedRequest]:
        return iter(self.requests)

    def clients(self) -> Sequence[Sequence[Turn]]:
        return self.turns

    def phases(self) -> Sequence[Phase]:
        return self.benchmark


def scripted(
    rid: str,
    *segments: tuple[int, int],
    output: int,
    limit: int | None = None,
    arrival_ns: int = 0,
    priority: int = 0,
    ignore_eos: bool = False,
    output_seed: int | None = None,
    session: str = "",
    gives_up_ns: int | None = None,
) -> ScriptedRequest:
    """A request whose prompt is these `(seed, num_tokens)` segments."""
    spec = RequestSpec(
        rid=rid,
        arrival_ns=arrival_ns,
        prompt=SegmentPrompt(segments),
        max_new_tokens=output if limit is None else limit,
        priority=priority,
        ignore_eos=ignore_eos,
        session=session,
        gives_up_ns=gives_up_ns,
    )
    seed = output_seed if output_seed is not None else 1 << 20 | sum(rid.encode())
    return ScriptedRequest(spec, OutputScript(output, seed))
