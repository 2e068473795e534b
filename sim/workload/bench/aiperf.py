"""What AIPerf draws, as AIPerf 0.13.0 does with a synthetic dataset.

Every kind of draw has a Python generator of its own, seeded with the first eight bytes of the
SHA-256 of `SEED:NAME` (`aiperf.common.random_generator`). Lengths are normal, drawn again while
negative, and rounded up (`aiperf.dataset.composer`, `aiperf.dataset.generator.prompt`). Requests
take the dataset's entries in turn, the warm-up's first (`aiperf.dataset.dataset_samplers`). With a
rate, the client looks at random times whether a place is free, and skips the time if none is
(`aiperf.timing.strategies.request_rate`, `aiperf.timing.intervals`).
"""

import math
import random
from collections.abc import Iterator
from hashlib import sha256

import numpy as np

from sim.core.arrays import Int64
from sim.core.units import NS_PER_S
from sim.workload.bench.config import BenchConfig

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
