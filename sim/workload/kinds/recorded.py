"""Builds the workload of a trace."""

from dataclasses import replace

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError, KeyPath
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload.config import TraceConfig
from sim.workload.kinds.context import BuildContext, require_short_prompts
from sim.workload.lengths import limit_outputs, quoted_tokens
from sim.workload.prompts import BlockPrompts, EitherPrompts, HistoryPrompts, PromptColumn
from sim.workload.traces.rows import Sessions, TraceRows
from sim.workload.workload import (
    Chains,
    LazySequence,
    RequestTable,
    Workload,
    closed_loop,
    open_loop,
)


def build_trace(config: TraceConfig, context: BuildContext) -> Workload:
    """Read and check the file, and build its workload."""
    rows = context.read_trace(config, context.base_dir)
    if config.arrivals is not None and rows.has_times:
        reason = "the file itself says when its requests arrive (see time_scale)"
        raise InputError(reason, key=(*context.key, "arrivals"))
    num_rows = len(rows.arrival_ns)
    prompts, output_seeds = _contents(rows, context)
    limits = limit_outputs(config.max_new_tokens, rows.output_tokens, rows.max_new_tokens)
    generated = np.minimum(rows.output_tokens, limits)
    if rows.ignore_eos is not None:
        generated = np.where(rows.ignore_eos, limits, generated)
    if rows.closed_loop is not None:
        history_row = rows.closed_loop.history_row
        quoted = quoted_tokens(rows.output_tokens, limits)
        prompts = HistoryPrompts(prompts, history_row, quoted, output_seeds)
        require_short_prompts(prompts, context.key)
    table = RequestTable(
        rids=rows.rids or LazySequence(num_rows, str),
        prompts=prompts,
        output_tokens=rows.output_tokens,
        output_seeds=output_seeds,
        max_new_tokens=limits,
        known_outputs=rows.known_outputs,
        predicted_tokens=context.predict(config, generated),
        priorities=context.priorities(config, num_rows, rows.priorities),
        ignore_eos=rows.ignore_eos,
        gives_up_ns=context.give_up(config, num_rows, rows.gives_up_ns),
        tenants=(
            config.tenant
            if rows.tenants is None
            else [tenant or config.tenant for tenant in rows.tenants]
        ),
        sessions=rows.sessions,
    )
    # With one session for each request, no request waits for another one.
    if rows.closed_loop is not None and (
        len(rows.closed_loop.offsets) <= num_rows or config.at_a_time is not None
    ):
        return _closed_loop(table, rows, rows.closed_loop, config, context)
    if config.at_a_time is not None:
        reason = "the requests of this file do not wait for each other"
        raise InputError(reason, key=(*context.key, "at_a_time"))
    return open_loop(table, _arrivals_ns(rows.arrival_ns, config, context), rows.notes)


def _closed_loop(
    table: RequestTable,
    rows: TraceRows,
    loop: Sessions,
    config: TraceConfig,
    context: BuildContext,
) -> Workload:
    """Sessions whose requests wait for each other, with recorded or drawn pauses."""
    if loop.pause_ns is not None:
        longest_s = config.max_pause_s
        pauses = loop.pause_ns
        if longest_s is not None:
            pauses = np.minimum(pauses, round(longest_s * NS_PER_S))
        delay_ns = _scaled(pauses, config.time_scale, context.key)
    elif config.think_s is not None:
        delay_ns = context.think_ns(config.think_s, len(rows.arrival_ns))
    else:
        delay_ns = np.zeros(len(rows.arrival_ns), dtype=np.int64)
    delay_ns = delay_ns.copy()
    chains = Chains(
        offsets=loop.offsets,
        think_ns=delay_ns,
        parent_row=loop.parent_row,
        calls_tool=loop.calls_tool,
    )
    # A client's first row has no pause before it, but a time of arrival.
    begins = loop.offsets[chains.clients()]
    delay_ns[begins] = 0
    if config.at_a_time is None:
        delay_ns[begins] = _arrivals_ns(rows.arrival_ns[begins], config, context)
    return closed_loop(table, chains, rows.notes, places=config.at_a_time)


def _arrivals_ns(recorded_ns: Int64, config: TraceConfig, context: BuildContext) -> Int64:
    """The recorded times, or drawn ones if the file has none."""
    if config.arrivals is None:
        return _scaled(recorded_ns, config.time_scale, context.key)
    return context.arrivals_ns(config.arrivals, len(recorded_ns))


def _contents(rows: TraceRows, context: BuildContext) -> tuple[PromptColumn, Int64]:
    """Prompts, and the token streams of outputs. The parts of a mix share no tokens."""
    streams, prompts, output_seeds = context.streams, rows.prompts, rows.output_seeds
    if output_seeds is None:
        first = streams.take(len(rows.output_tokens))
        output_seeds = np.arange(first, first + len(rows.output_tokens))
    if isinstance(prompts, np.ndarray):
        return context.unshared_prompts(prompts), output_seeds
    if context.mixed and isinstance(prompts, BlockPrompts):
        return replace(prompts, block_ids=streams.rename_blocks(prompts.block_ids)), output_seeds
    if context.mixed and isinstance(prompts, EitherPrompts):
        segments = prompts.segments
        renamed = streams.rename_streams(np.concatenate((segments.seeds, output_seeds)))
        seeds, output_seeds = np.split(renamed, [len(segments.seeds)])
        return replace(prompts, segments=replace(segments, seeds=seeds)), output_seeds
    return prompts, output_seeds


def _scaled(arrival_ns: Int64, time_scale: float, key: KeyPath) -> Int64:
    if time_scale == 1:
        return arrival_ns
    scaled: Float64 = np.rint(arrival_ns * time_scale)
    if scaled.max() > MAX_TIME_NS:
        reason = "moves the last arrival out of the clock's range"
        raise InputError(reason, key=(*key, "time_scale"))
    return scaled.astype(np.int64)
