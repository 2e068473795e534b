"""Retraction: running requests are put back if the next decode step does not fit (rule 11)."""

from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.queues import Queues
from sim.sglang.scheduler.server import SglangServer


def retract(
    server: SglangServer, queues: Queues
) -> tuple[list[SglangRequest], list[SglangRequest]]:
    """Remove requests from the running batch until the next decode step fits (0.5.1: several).

    At least one request is retracted; one whose KV cannot be kept is aborted instead. The last one
    is not retracted: if it does not fit alone, it is aborted. As in SGLang, the rows that stay are
    then ordered by preference.

    Returns:
        The retracted requests and the aborted ones, each in the order of removal.
    """
    running = server.running
    preferred = sorted(running.requests, key=lambda r: _preference(r, server, queues), reverse=True)
    retracted: list[SglangRequest] = []
    aborted: list[SglangRequest] = []
    is_first = True
    while len(preferred) > 1 and (is_first or _must_shrink(server, preferred)):
        is_first = False
        removed = retracted if queues.keeps_kv(preferred[-1]) else aborted
        removed.append(_pop_row(server, preferred))
    if len(preferred) == 1 and not _fits(server, preferred):
        aborted.append(_pop_row(server, preferred))
    running.reorder(preferred)
    return retracted, aborted


def _preference(request: SglangRequest, server: SglangServer, queues: Queues) -> tuple[int, int, int]:
    """Sort key; the smallest is retracted first.

    Compared in this order: priority (with `retraction_policy: priority`), tokens generated, and
    shortness of the prompt.
    """
    config = server.config
    by_priority = config.retraction_policy == "priority"
    priority = -config.priority_sign * request.priority if by_priority else 0
    return priority, queues.num_known_outputs(request), -request.prompt_len


def _fits(server: SglangServer, rows: list[SglangRequest]) -> bool:
    return server.kv.can_decode(server.steps.num_new_pages_of(rows))


def _must_shrink(server: SglangServer, rows: list[SglangRequest]) -> bool:
    if server.rules.retracts_for_steps:
        return server.kv.free_tokens < len(rows) * server.config.retract_decode_steps
    return not _fits(server, rows)


def _pop_row(server: SglangServer, rows: list[SglangRequest]) -> SglangRequest:
    request = rows.pop()
    server.running.remove([request])
    server.release_for_later(request, len(rows))
    return request
