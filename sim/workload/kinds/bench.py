"""Builds the phases of a benchmark, the warm-up and the measured requests, as a client draws them.

Lengths, and when requests are asked for (sent, if the limit on concurrency leaves a place), are the
draws of these programs, in their order and from their generators:

* SGLang 0.5.23, `sglang.benchmark.datasets.random` and `sglang.benchmark.serving`; the same in
  0.5.9 (`sglang.bench_serving`). One `np.random` generator: prompt lengths, output lengths, with
  `random-ids` a token for each prompt, then the gaps.
* vLLM 0.19.0, `vllm.benchmarks.datasets` (`RandomDataset`) and `vllm.benchmarks.serve`. Lengths
  are of `default_rng(seed)`; gaps are of `np.random`, and are stretched so that the last request
  is asked for exactly at number / rate.
* InferenceX at 843c6254f, `utils/bench_serving/benchmark_serving.py`. One `np.random` generator:
  the prefix, prompt lengths, output lengths, a token for each prompt, then the gaps.
* AIPerf 0.13.0 with a synthetic dataset. Every kind of draw has a Python generator of its own,
  seeded with the first eight bytes of the SHA-256 of `SEED:NAME`
  (`aiperf.common.random_generator`). Lengths are normal, drawn again while negative, and rounded
  up (`aiperf.dataset.composer`, `aiperf.dataset.generator.prompt`). Requests take the dataset's
  entries in turn, the warm-up's first (`aiperf.dataset.dataset_samplers`). With a rate, the client
  looks at random times whether a place is free, and skips the time if none is
  (`aiperf.timing.strategies.request_rate`, `aiperf.timing.intervals`).
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.batch import OutputScript
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.workload.arrivals import to_ns
from sim.workload.bench_command import MAX_SEED, BenchConfig
from sim.workload.kinds.context import BuildContext, require_short_prompts
from sim.workload.workload import (
    LazySequence,
    Phase,
    RequestTable,
    ScriptedRequest,
    Turn,
    Workload,
    listed,
)


class Draws(NamedTuple):
    """What a client draws before it sends.

    Attributes:
        own_tokens: of each prompt, without what all prompts begin with; shape [num_prompts].
        output_tokens: shape [num_prompts].
        asked_s: when each request is asked for, from the client's start; shape [num_prompts].
        sending_s: how long the client takes to ask for all of them.
    """

    own_tokens: Int64
    output_tokens: Int64
    asked_s: Float64
    sending_s: float


def draw_sglang(config: BenchConfig, seed: int) -> Draws:
    rng = np.random.RandomState(seed)
    num = config.num_prompts

    def lengths(longest: int) -> Int64:
        shortest = max(int(longest * config.spread), 1)
        return _whole(rng.randint(shortest, longest + 1, size=num))

    prompts, outputs = lengths(config.input_len), lengths(config.output_len)
    if config.dataset_name == "random-ids" and config.vocab_size is not None:
        rng.randint(0, config.vocab_size, size=num)
    gaps_s = None
    if config.request_rate is not None:
        gaps_s = rng.exponential(1 / config.request_rate, num)
    # The client makes room for the special tokens.
    own = np.maximum(1, prompts - config.special_tokens)
    return Draws(own, outputs, *_asked_after_gaps(gaps_s, num))


def draw_vllm(config: BenchConfig, seed: int) -> Draws:
    rng = np.random.default_rng(seed)
    num, spread = config.num_prompts, config.spread

    def lengths(mean: int, at_least: int) -> Int64:
        low, high = math.floor(mean * (1 - spread)), math.ceil(mean * (1 + spread))
        return rng.integers(max(low, at_least), max(high, at_least) + 1, size=num)

    prompts = lengths(max(0, config.input_len - config.special_tokens), 0)
    outputs = lengths(config.output_len, 1)
    asked_s, sending_s = np.zeros(num), 0.0
    if config.request_rate is not None:
        shape, rate_rps = config.burstiness or 1.0, config.request_rate
        gaps_s = np.random.RandomState(seed).gamma(shape, 1 / (rate_rps * shape), num)
        asked_s = np.cumsum(gaps_s)
        sending_s = num / rate_rps
        asked_s = asked_s * (sending_s / asked_s[-1])
    return Draws(prompts, outputs, asked_s, sending_s)


def draw_inferencex(config: BenchConfig, seed: int) -> Draws:
    rng = np.random.RandomState(seed)
    num, template = config.num_prompts, config.chat_template_tokens
    if config.prefix_len and config.vocab_size is not None:
        rng.randint(0, config.vocab_size, size=config.prefix_len)

    def lengths(longest: int) -> Int64:
        return _whole(rng.randint(int(longest * config.spread), longest + 1, size=num))

    prompts, outputs = lengths(config.input_len - template), lengths(config.output_len)
    gaps_s = None
    if config.request_rate is not None and config.vocab_size is not None:
        rng.randint(0, config.vocab_size, size=num)
        shape = config.burstiness or 1.0
        gaps_s = rng.gamma(shape, 1 / (config.request_rate * shape), num)
    return Draws(prompts + template, outputs, *_asked_after_gaps(gaps_s, num))


def _asked_after_gaps(gaps_s: Float64 | None, num: int) -> tuple[Float64, float]:
    """The first request is asked for at once; a gap follows each request, the last one too."""
    if gaps_s is None:
        return np.zeros(num), 0.0
    ends_s = np.cumsum(gaps_s)
    return np.concatenate(([0.0], ends_s[:-1])), float(ends_s[-1])


def _whole(numbers: object) -> Int64:
    return np.asarray(numbers, dtype=np.int64)


_MOST_TRIES = 10_000


def draw_entries(config: BenchConfig, seed: int) -> tuple[Int64, Int64]:
    """Prompt lengths, without special tokens, and output lengths of the dataset's entries."""
    num = config.dataset_entries or config.num_prompts
    prompts = _generator(seed, "dataset.prompt.length")
    outputs = _generator(seed, "composer.turn.max_tokens")
    mean = max(1, config.input_len - config.special_tokens)
    own = [_length(prompts, mean, config.input_len_stddev) for _ in range(num)]
    output = [_length(outputs, config.output_len, config.output_len_stddev) for _ in range(num)]
    return np.array(own, dtype=np.int64), np.array(output, dtype=np.int64)


def ticks_ns(config: BenchConfig, seed: int) -> Iterator[int]:
    """The times at which the client looks for a free place, without end, from a phase's start."""
    rate_rps, shape = config.request_rate or 1.0, config.burstiness or 1.0
    pattern = config.arrival_pattern or ("gamma" if config.burstiness is not None else "poisson")
    rng = _generator(seed, f"timing.request.{pattern}_interval")
    at_s = 0.0
    while True:
        match pattern:
            case "poisson":
                at_s += rng.expovariate(rate_rps)
            case "gamma":
                at_s += rng.gammavariate(shape, 1 / (rate_rps * shape))
            case "constant":
                at_s += 1 / rate_rps
        yield round(at_s * NS_PER_S)


def _generator(seed: int, name: str) -> random.Random:
    digest = sha256(f"{seed}:{name}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def _length(rng: random.Random, mean: int, stddev: int) -> int:
    if not stddev:
        return mean
    drawn = (rng.gauss(mean, stddev) for _ in range(_MOST_TRIES))
    return max(1, math.ceil(next((length for length in drawn if length >= 0), mean)))


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
    once = [phase for phase in (warm_up, measured) if phase.turns]
    before = [_before(phase, run) for run in range(config.runs_before) for phase in once]
    phases = before + once
    client = {
        "name": config.client,
        "max_concurrency": config.max_concurrency,
        "request_rate": config.request_rate,
        "special_tokens": config.special_tokens,
        "first_asked_ns": first_asked_ns,
        "sending_ns": sending_ns,
    }
    return replace(listed(phases=phases), client=client)


def _before(phase: Phase, run: int) -> Phase:
    """The requests of an earlier run, which count nowhere."""

    def turn(place: int) -> Turn:
        measured = phase.turns[place]
        spec = measured.request.spec.copy()
        spec.rid, spec.warm_up = f"run-{run}-{spec.rid}", True
        return Turn(measured.think_ns, ScriptedRequest(spec, measured.request.script))

    return replace(phase, turns=LazySequence(len(phase.turns), turn))


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
    require_short_prompts(prompts, context.key)
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
