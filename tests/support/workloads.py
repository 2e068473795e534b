"""Small workloads for tests."""

from sim.core.batch import OutputScript
from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt
from sim.workload.workload import ScriptedRequest


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
