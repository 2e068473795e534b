"""Builds the workload of a trace."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError, KeyPath
from sim.core.units import MAX_TIME_NS
from sim.workload.config import TraceConfig
from sim.workload.context import BuildContext
from sim.workload.lengths import limit_outputs
from sim.workload.prefixes import unshared_prompts
from sim.workload.prompts import BlockPrompts, EitherPrompts, PromptColumn
from sim.workload.table import LazySequence, OpenLoopWorkload, RequestTable
from sim.workload.traces.rows import TraceRows


def build_trace(config: TraceConfig, context: BuildContext) -> OpenLoopWorkload:
    """Read and check the file, and build its workload.

    Raises:
        InputError: the file is bad, or `time_scale` moves arrivals out of the clock's range.
    """
    rows = context.read_trace(config, context.base_dir)
    num_rows = len(rows.arrival_ns)
    prompts, output_seeds = _contents(rows, context)
    limits = limit_outputs(config.max_new_tokens, rows.output_tokens, rows.max_new_tokens)
    generated = np.minimum(rows.output_tokens, limits)
    if rows.ignore_eos is not None:
        generated = np.where(rows.ignore_eos, limits, generated)
    table = RequestTable(
        rids=rows.rids or LazySequence(num_rows, str),
        prompts=prompts,
        output_tokens=rows.output_tokens,
        output_seeds=output_seeds,
        max_new_tokens=limits,
        predicted_tokens=context.predict(config, generated),
        priorities=rows.priorities,
        ignore_eos=rows.ignore_eos,
        tenants=_tenants(rows.tenants, config.tenant),
        sessions=rows.sessions,
    )
    return OpenLoopWorkload(table, _scaled(rows.arrival_ns, config.time_scale, context.key))


def _contents(rows: TraceRows, context: BuildContext) -> tuple[PromptColumn, Int64]:
    """Prompts, and the token streams of outputs. The parts of a mix share no tokens."""
    streams, prompts, output_seeds = context.streams, rows.prompts, rows.output_seeds
    if output_seeds is None:
        first = streams.take(len(rows.output_tokens))
        output_seeds = np.arange(first, first + len(rows.output_tokens))
    if isinstance(prompts, np.ndarray):
        return unshared_prompts(prompts, streams), output_seeds
    if context.mixed and isinstance(prompts, BlockPrompts):
        return replace(prompts, block_ids=streams.rename_blocks(prompts.block_ids)), output_seeds
    if context.mixed and isinstance(prompts, EitherPrompts):
        segments = prompts.segments
        renamed = streams.rename_streams(np.concatenate((segments.seeds, output_seeds)))
        seeds, output_seeds = np.split(renamed, [len(segments.seeds)])
        return replace(prompts, segments=replace(segments, seeds=seeds)), output_seeds
    return prompts, output_seeds


def _tenants(own: Sequence[str] | None, configured: str) -> str | Sequence[str]:
    return configured if own is None else [tenant or configured for tenant in own]


def _scaled(arrival_ns: Int64, time_scale: float, key: KeyPath) -> Int64:
    if time_scale == 1:
        return arrival_ns
    scaled: Float64 = np.rint(arrival_ns * time_scale)
    if scaled.max() > MAX_TIME_NS:
        reason = "moves the last arrival out of the clock's range"
        raise InputError(reason, key=(*key, "time_scale"))
    return scaled.astype(np.int64)
