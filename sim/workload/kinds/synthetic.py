"""Drawn requests: sent at drawn times, by clients that wait for answers, or in conversations."""

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError, KeyPath
from sim.core.units import MAX_TIME_NS
from sim.workload import MAX_REQUESTS
from sim.workload.config import ClientsConfig, SessionsConfig, SyntheticConfig
from sim.workload.kinds.context import BuildContext
from sim.workload.lengths import limit_outputs, quoted_tokens
from sim.workload.prompts import NO_SUMMARY, TurnPrompts
from sim.workload.workload import (
    Chains,
    LazySequence,
    RequestTable,
    Workload,
    closed_loop,
    open_loop,
)


def build_drawn(
    config: SyntheticConfig | ClientsConfig | SessionsConfig, context: BuildContext
) -> Workload:
    """Draw the requests."""
    if isinstance(config, SessionsConfig):
        return _sessions(config, context)
    if isinstance(config, SyntheticConfig):
        arrival_ns = context.arrivals_ns(config.arrivals, config.num_requests)
        return open_loop(_draw_requests(config, context, config.num_requests), arrival_ns)
    per_client = config.requests_per_client
    num_requests = config.clients * per_client
    think_ns = context.think_ns(config.think_s, num_requests)
    think_ns[::per_client] = 0
    table = _draw_requests(config, context, num_requests, per_client=per_client)
    offsets = np.arange(config.clients + 1) * per_client
    return closed_loop(table, Chains(offsets=offsets, think_ns=think_ns))


def _draw_requests(
    config: SyntheticConfig | ClientsConfig,
    context: BuildContext,
    num_requests: int,
    *,
    per_client: int | None = None,
) -> RequestTable:
    own_tokens = context.lengths(config, "prompt_tokens", num_requests)
    prompts = context.prefixed_prompts(own_tokens, config.system_prompt_tokens, config.prefixes)
    output_tokens = context.lengths(config, "output_tokens", num_requests)

    def client_of(row: int) -> str:
        return str(row // per_client) if per_client else ""

    def client_rid(row: int) -> str:
        return f"{client_of(row)}-{row % per_client}" if per_client else str(row)

    return context.generated_table(
        config,
        rids=LazySequence(num_requests, client_rid),
        prompts=prompts,
        output_tokens=output_tokens,
        output_seed=context.streams.take(num_requests),
        sessions=LazySequence(num_requests, client_of) if per_client else None,
    )


def _sessions(config: SessionsConfig, context: BuildContext) -> Workload:
    """Draw all sessions, their turns and their texts."""
    key = context.key
    turns = context.lengths(config, "turns", config.sessions)
    offsets = np.concatenate(([0], np.cumsum(turns)))
    num_turns = int(offsets[-1])
    if num_turns > MAX_REQUESTS:
        raise InputError(
            f"drew {num_turns} turns in all, above {MAX_REQUESTS}", key=(*key, "turns")
        )
    session = np.repeat(np.arange(config.sessions), turns)
    output_tokens = context.lengths(config, "output_tokens", num_turns)
    prompts = _draw_prompts(config, context, session, offsets, output_tokens)
    first_rows = offsets[:-1]

    def turn_rid(row: int) -> str:
        number = session.item(row)
        return f"{number}-{row - offsets.item(number)}"

    table = context.generated_table(
        config,
        rids=LazySequence(num_turns, turn_rid),
        prompts=prompts,
        output_tokens=output_tokens,
        output_seed=prompts.output_seed,
        sessions=LazySequence(num_turns, lambda row: str(session.item(row))),
    )
    delay_ns, begins = context.think_ns(config.think_s, num_turns), offsets
    if config.arrivals is None:
        delay_ns[first_rows] = 0
        if config.clients is not None:
            firsts = np.arange(config.clients + 1) * config.sessions // config.clients
            begins = offsets[firsts]
    else:
        delay_ns[first_rows] = context.arrivals_ns(config.arrivals, config.sessions)
    if config.closed_loop:
        chains = Chains(offsets=begins, think_ns=delay_ns)
        return closed_loop(table, chains, places=config.at_a_time)
    return open_loop(table, _sum_within_sessions(delay_ns, turns, first_rows, key))


def _draw_prompts(
    config: SessionsConfig,
    context: BuildContext,
    session: Int64,
    offsets: Int64,
    output_tokens: Int64,
) -> TurnPrompts:
    streams, system, num_turns = context.streams, config.system_prompts, len(session)
    num_system = 0 if system is None else system.count
    first_system_seed = streams.take(num_system)
    drawn = context.random.stream("system_prompt").integers(0, max(num_system, 1), config.sessions)
    limits = limit_outputs(config.max_new_tokens, output_tokens, own=None)
    return TurnPrompts(
        system_tokens=np.broadcast_to(0 if system is None else system.tokens, num_turns),
        system_seeds=(first_system_seed + drawn)[session],
        summary=np.broadcast_to(NO_SUMMARY, num_turns),
        begin=offsets[session],
        own_tokens=context.lengths(config, "user_tokens", num_turns),
        own_seed=streams.take(num_turns),
        quoted_tokens=quoted_tokens(output_tokens, limits),
        output_seed=streams.take(num_turns),
    )


def _sum_within_sessions(delay_ns: Int64, turns: Int64, first_rows: Int64, key: KeyPath) -> Int64:
    """For each turn, the sum of the delays from the beginning of its session."""
    longest_ns = np.add.reduceat(delay_ns.astype(np.float64), first_rows).max()
    if longest_ns > MAX_TIME_NS:
        raise InputError("a session's think times add up to more than the clock can hold", key=key)
    # The sum over all sessions may wrap around. Differences within a session are right even then.
    sums = np.cumsum(delay_ns)
    return sums - np.repeat(sums[first_rows] - delay_ns[first_rows], turns)
