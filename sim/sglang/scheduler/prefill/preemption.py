"""Preemption: running requests go back to the queue for a more important one (rule 13)."""

from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangBatch, SglangRequest
from sim.sglang.scheduler.prefill.adder import PrefillAdder
from sim.sglang.scheduler.retraction import Release


def preempt_for(
    candidate: SglangRequest,
    *,
    config: SchedulerConfig,
    adder: PrefillAdder,
    running: SglangBatch,
    release: Release,
) -> list[SglangRequest]:
    """Remove victims from the running batch so that `candidate` fits.

    Args:
        candidate: a waiting request; all slots of the batch are taken.
        config: the settings.
        adder: the budgets of this pass; they get back what was reserved for the victims.
        running: the running batch.
        release: frees a victim's KV.

    Returns:
        The victims in batch order. Empty: the running requests that are less important by more than
        the threshold would not free enough memory.
    """
    victims = _choose(candidate, config, adder, running)
    if not victims:
        return []
    chosen = set(map(id, victims))
    in_order = [request for request in running.requests if id(request) in chosen]
    num_remaining = len(running)
    for victim in in_order:
        adder.budget.total_offset -= adder.reservation(victim)
    running.remove(in_order)
    for victim in in_order:
        num_remaining -= 1
        release(victim, num_remaining)
    return in_order


def _choose(
    candidate: SglangRequest, config: SchedulerConfig, adder: PrefillAdder, running: SglangBatch
) -> list[SglangRequest]:
    sign = config.priority_sign
    # As in SGLang, `fill_len` is 0 until a pass first tries to admit the request. Until then its
    # prompt does not count here.
    missing = (
        candidate.fill_len
        - candidate.prefix_len
        + min(candidate.max_new_tokens, config.clip_max_new_tokens)
        - adder.budget.total_tokens
    )
    victims: list[SglangRequest] = []
    least_first = sorted(running.requests, key=lambda r: (-sign * r.priority, -r.entry))
    for request in least_first:
        gap = (request.priority - candidate.priority) * sign
        if gap <= config.priority_scheduling_preemption_threshold:
            break
        victims.append(request)
        missing -= adder.reservation(request)
        if missing <= 0:
            return victims
    return []
