"""Builds the phases of a benchmark: the warm-up, then the measured requests."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.engine.executor import OutputScript
from sim.workload.arrivals import to_ns
from sim.workload.bench.draws import (
    Draws,
    draw_entries,
    draw_inferencex,
    draw_sglang,
    draw_vllm,
    ticks_ns,
)
from sim.workload.bench_config import MAX_SEED, BenchConfig
from sim.workload.context import BuildContext
from sim.workload.limits import MAX_TOKENS
from sim.workload.table import LazySequence, RequestTable
from sim.workload.workload import Phase, ScriptedRequest, Turn, Workload, listed

# SGLang's warm-up generates this many tokens at most, and is followed by this pause.
_SGLANG_WARMUP_OUTPUT = 32
_SGLANG_PAUSE_NS = NS_PER_S

_DRAWS: dict[str, Callable[[BenchConfig, int], Draws]] = {
    "sglang": draw_sglang,
    "vllm": draw_vllm,
    "inferencex": draw_inferencex,
}


def build_bench(config: BenchConfig, context: BuildContext) -> Workload:
    """Draw the requests."""
    seed = context.random.seed if config.seed is None else config.seed
    if seed > MAX_SEED:
        raise InputError(f"a client's seed is at most {MAX_SEED}, got {seed}", key=("seed",))
    if config.client == "aiperf":
        return _aiperf(config, context, seed)
    draws = _DRAWS[config.client](config, seed)
    asked_ns = to_ns(draws.asked_s, key=(*context.key, "request_rate"))
    table = _table(config, context, draws.own_tokens, draws.output_tokens)
    first = table.request(len(draws.own_tokens) if config.flush_cache else 0, 0)
    pause_ns = 0
    if config.client == "sglang":
        pause_ns = _SGLANG_PAUSE_NS
        num_tokens = min(first.script.num_tokens, _SGLANG_WARMUP_OUTPUT)
        first.spec.max_new_tokens = num_tokens
        first = ScriptedRequest(first.spec, OutputScript(num_tokens, first.script.seed))

    def warm_up(index: int) -> Turn:
        return _turn(first, f"warm-up-{index}", warm_up=True)

    def measured(index: int) -> Turn:
        return Turn(asked_ns.item(index), table.request(index, 0))

    places = config.max_concurrency
    return _workload(
        config,
        Phase(turns=LazySequence(config.num_warmups, warm_up), places=places),
        Phase(turns=LazySequence(config.num_prompts, measured), places=places, pause_ns=pause_ns),
        first_asked_ns=int(asked_ns[0]),
        sending_ns=round(draws.sending_s * NS_PER_S),
    )


def _aiperf(config: BenchConfig, context: BuildContext, seed: int) -> Workload:
    own_tokens, output_tokens = draw_entries(config, seed)
    table = _table(config, context, own_tokens, output_tokens)
    num_warmups, num_entries = config.num_warmups, len(own_tokens)
    ticks = None if config.request_rate is None else partial(ticks_ns, config, seed)

    def warm_up(index: int) -> Turn:
        return _turn(table.request(index % num_entries, 0), f"warm-up-{index}", warm_up=True)

    def measured(index: int) -> Turn:
        row = (num_warmups + index) % num_entries
        return _turn(table.request(row, 0), str(index))

    places = config.max_concurrency
    return _workload(
        config,
        Phase(turns=LazySequence(num_warmups, warm_up), places=places, ticks=ticks),
        Phase(turns=LazySequence(config.num_prompts, measured), places=places, ticks=ticks),
        first_asked_ns=0,
        sending_ns=0,
    )


def _workload(
    config: BenchConfig, warm_up: Phase, measured: Phase, *, first_asked_ns: int, sending_ns: int
) -> Workload:
    phases = [phase for phase in (warm_up, measured) if phase.turns]
    client = {
        "name": config.client,
        "max_concurrency": config.max_concurrency,
        "request_rate": config.request_rate,
        "special_tokens": config.special_tokens,
        "first_asked_ns": first_asked_ns,
        "sending_ns": sending_ns,
    }
    return replace(listed(phases=phases), client=client)


def _turn(request: ScriptedRequest, rid: str, *, warm_up: bool = False) -> Turn:
    spec = request.spec.copy()
    spec.rid, spec.warm_up = rid, warm_up
    return Turn(0, ScriptedRequest(spec, request.script))


def _table(
    config: BenchConfig, context: BuildContext, own_tokens: Int64, output_tokens: Int64
) -> RequestTable:
    """One row for each prompt. If the cache is flushed, a last row is the warm-up's prompt.

    It is as long as the first prompt and shares no more with it than any other.
    """
    for name, drawn in (("input_len", own_tokens), ("output_len", output_tokens)):
        if drawn.min() < 1:
            reason = "the client drew a length of 0 tokens: another range_ratio avoids it"
            raise InputError(reason, key=(*context.key, name))
    if config.flush_cache:
        own_tokens, output_tokens = (
            np.append(drawn, drawn[0]) for drawn in (own_tokens, output_tokens)
        )
    # Special tokens and the prefix are the same in all prompts; the rest differs.
    shared_tokens = config.special_tokens + config.prefix_len
    prompts = context.prefixed_prompts(own_tokens, shared_tokens, prefixes=None)
    longest = int(prompts.num_tokens.max())
    if longest > MAX_TOKENS:
        raise InputError(f"a prompt has {longest} tokens, above {MAX_TOKENS}", key=context.key)
    num_rows = len(own_tokens)
    first_seed = context.streams.take(num_rows)
    return RequestTable(
        rids=LazySequence(num_rows, str),
        prompts=prompts,
        output_tokens=output_tokens,
        output_seeds=np.arange(first_seed, first_seed + num_rows),
        max_new_tokens=output_tokens,
        ignore_eos=np.ones(num_rows, dtype=np.bool_),
    )
