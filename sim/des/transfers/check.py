"""The check of requests that a prefill server and a decode server share: where their KV is."""

from collections.abc import Sequence

from sim.core.errors import require
from sim.des.transfers.handover import Handover, Handovers
from sim.engine.core import EngineCore
from sim.engine.request import Request


def check_handovers(handovers: Handovers) -> None:
    """Verify that the KV of every prompt is on a server, or on its way, once it is computed.

        computed, not sent     the prefill server has it
        on its way             the prefill server still has it, and the decode server has room
        arrived                the decode server has it

    Raises:
        InvariantError: an invariant is broken; the message names it.
    """
    for rid, handover in handovers.live.items():
        _check_handover(rid, handover)


def _check_handover(rid: str, handover: Handover) -> None:
    prompt_len = len(handover.request.spec.prompt)
    require(
        handover.num_computed <= prompt_len,
        f"{rid}: {handover.num_computed} of {prompt_len} prompt tokens are computed",
    )
    if handover.is_lost:
        return
    source = _request_on(handover.source.replica.engines, rid)
    if handover.num_computed and not handover.has_arrived:
        require(source is not None, f"{rid}: its KV left the prefill server before it arrived")
    if source is not None and not handover.has_arrived:
        require(
            handover.num_computed <= source.seq_len,
            f"{rid}: {handover.num_computed} tokens may be sent, but {source.seq_len} have KV",
        )
    if handover.num_under_way or handover.has_arrived:
        target = None
        if handover.target is not None:
            target = _request_on(handover.target.replica.engines, rid)
        require(target is not None, f"{rid}: its KV is sent to a server that does not know it")
        if target is not None and not target.retractions and not target.preemptions:
            require(
                target.seq_len >= prompt_len - 1,
                f"{rid}: {prompt_len} prompt tokens are sent, but only {target.seq_len} have room",
            )


def _request_on(engines: Sequence[EngineCore], rid: str) -> Request | None:
    return next((engine.requests[rid] for engine in engines if rid in engine.requests), None)
