"""Draws the requests of a case, which share, continue and repeat each other's prompts."""

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Config = dict[str, Any]
Row = dict[str, Any]
Segments = list[list[int]]

# Duration of each step in cases whose steps all take the same time. Arrivals are then drawn at the
# ends of steps.
STEP_S = 0.005
_FIRST_OWN_SEED, _FIRST_SHARED_SEED, _FIRST_OUTPUT_SEED = 5_000, 800, 70_000


def has_limits(version: str) -> bool:
    """Whether a version is so new that it has the settings that came with 0.33.0."""
    return tuple(int(number) for number in version.split(".")[:2]) >= (0, 33)


@dataclass(frozen=True, kw_only=True)
class Load:
    """How requests are drawn.

    Attributes:
        num_requests: number of requests.
        gap_s: mean time between arrivals that are not at the same time.
        together: share of requests that arrive at the time of the one before.
        longest_prompt: most tokens of a shared part. A prompt's own part has at most half of that.
        longest_output: most tokens of an output.
        sharing, quoting, repeating: shares of prompts that share a prefix, that continue an earlier
            prompt and its answer, and that repeat an earlier prompt.
        whole_blocks: share of prompts that are cut to whole blocks.
        too_long: share of prompts that may be too long for the model.
        endless: share of requests that ignore end tokens.
        slack: largest ratio of `max_new_tokens` to the output's length.
        num_priorities: number of different priorities.
        impatient: share of clients that give up.
        patience_s: how long they wait on average.
    """

    num_requests: int
    gap_s: float = 0.01
    together: float = 0.4
    longest_prompt: int = 60
    longest_output: int = 20
    sharing: float = 0.0
    quoting: float = 0.0
    repeating: float = 0.0
    whole_blocks: float = 0.0
    too_long: float = 0.0
    endless: float = 0.0
    slack: int = 4
    num_priorities: int = 4
    impatient: float = 0.0
    patience_s: float = 0.1


def draw_rows(rng: random.Random, config: Config, load: Load) -> list[Row]:
    """The workload of a case, in order of time."""
    prompts = _Prompts(rng, config, load)
    rows: list[Row] = []
    for i, arrival_s in enumerate(_draw_arrivals(rng, config, load)):
        output = rng.randint(1, load.longest_output)
        limits = [output, output, output * load.slack, rng.randint(1, load.longest_output)]
        row: Row = {
            "rid": f"r{i}",
            "arrival": arrival_s,
            "segments": prompts.draw(i),
            "output_len": output,
            "max_new_tokens": rng.choice(limits),
            "output_seed": _FIRST_OUTPUT_SEED + i,
            "ignore_eos": rng.random() < load.endless,
        }
        if config["policy"] == "priority":
            row["priority"] = rng.randrange(load.num_priorities)
        if load.impatient and rng.random() < load.impatient:
            row["gives_up_after"] = _draw_patience(rng, config, load)
        if output > 1:
            prompts.answered.append([*row["segments"], [row["output_seed"], output - 1]])
        rows.append(row)
    return rows


def _draw_patience(rng: random.Random, config: Config, load: Load) -> float:
    """How long a client waits; up to the end of a step if all take the same time."""
    waits_s = rng.expovariate(1 / load.patience_s)
    if not config["latency"]["b"]:
        waits_s = max(1, round(waits_s / STEP_S)) * STEP_S
    return max(round(waits_s, 6), 1e-6)


def _draw_arrivals(rng: random.Random, config: Config, load: Load) -> list[float]:
    time_s, arrivals_s = 0.0, []
    on_boundaries = not config["latency"]["b"]
    for _ in range(load.num_requests):
        if rng.random() >= load.together:
            time_s += rng.expovariate(1.0) * load.gap_s
        boundary_s = round(time_s / STEP_S) * STEP_S
        arrivals_s.append(round(boundary_s if on_boundaries else time_s, 6))
    return arrivals_s


class _Prompts:
    """Draws the prompts of one workload.

    Attributes:
        answered: earlier prompts with their answers, which later ones may continue.
    """

    def __init__(self, rng: random.Random, config: Config, load: Load) -> None:
        self.answered: list[Segments] = []
        self._rng = rng
        self._load = load
        self._block_size: int = config["block_size"]
        self._room: int = config["max_model_len"] - 1
        self._earlier: list[Segments] = []

    def draw(self, number: int) -> Segments:
        rng, load = self._rng, self._load
        if self._earlier and rng.random() < load.repeating:
            return rng.choice(self._earlier)
        segments: Segments = []
        if self.answered and rng.random() < load.quoting:
            segments = [list(segment) for segment in rng.choice(self.answered)]
        elif rng.random() < load.sharing:
            shared = rng.randint(1, load.longest_prompt)
            segments = [[_FIRST_SHARED_SEED + rng.randint(0, 2), shared]]
        own = rng.randint(1, max(2, load.longest_prompt // 2))
        segments.append([_FIRST_OWN_SEED + number, own])
        if rng.random() < load.whole_blocks:
            segments = _cut(segments, self._whole_blocks(segments))
        if rng.random() >= load.too_long:
            segments = _cut(segments, self._room)
        self._earlier.append(segments)
        return segments

    def _whole_blocks(self, segments: Segments) -> int:
        num_tokens = sum(num for _, num in segments)
        return max(self._block_size, num_tokens // self._block_size * self._block_size)


def _cut(segments: Segments, num_tokens: int) -> Segments:
    """The segments cut to at most this number of tokens."""
    ends = [0]
    for _, num in segments:
        ends.append(min(ends[-1] + num, num_tokens))
    parts = zip(segments, pairwise(ends), strict=True)
    return [[seed, end - start] for (seed, _), (start, end) in parts if end > start]
