"""Stands in for the model: says which tokens a step samples, and how long the step takes."""

from typing import Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult

from sim.installed.inside.sglang.scheduler import begin_forward
from sim.installed.inside.sglang.settings import Config

END = 2  # the token that ends an answer; no stream of tokens has it
_UINT64 = (1 << 64) - 1


def token_at(seed: int, place: int) -> int:
    """Token `place` of the endless stream `seed`: 1000 to 1000 + 2**30 - 1."""
    mixed = (((seed & 0xFFFFFFFF) << 32 | place & 0xFFFFFFFF) + 0x9E3779B97F4A7C15) & _UINT64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _UINT64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _UINT64
    return 1000 + ((mixed ^ mixed >> 31) >> 34)


def prompt(segments: list[list[int]]) -> list[int]:
    """For each segment `[seed, n]`, the first n tokens of the stream."""
    return [token_at(seed, place) for seed, n in segments for place in range(n)]


class Model:
    """Requests sample their script's tokens, one for each row.

    What is sampled depends on the sequence's length alone, so it is the same with and without
    overlap and chunks. After an unfinished chunk it is nonsense, which SGLang throws away.
    """

    def __init__(self, config: Config, server: Any, infos: dict[str, Any]) -> None:
        self.config, self.server, self.infos = config, server, infos

    def sample(self, request: Any, length: int) -> int:
        """The token after `length` tokens."""
        info = self.infos[request.rid]
        place = length - info["prompt"]
        if place + 1 >= info["output_len"] and not request.sampling_params.ignore_eos:
            return END
        return token_at(info["output_seed"], place)

    def run(self, batch: Any) -> Any:
        """The step's result."""
        begin_forward(self.server, batch)
        return self.forward(batch)

    def forward(self, batch: Any) -> Any:
        return self._one_each(batch, batch.seq_lens_cpu.tolist())

    def _one_each(self, batch: Any, lengths: list[int]) -> Any:
        rows = zip(batch.reqs, lengths, strict=True)
        tokens = [self.sample(request, length) for request, length in rows]
        return GenerationBatchResult(
            logits_output=None,
            next_token_ids=torch.tensor(tokens, dtype=torch.int64),
            can_run_cuda_graph=False,
        )

    def known_lengths(self, batch: Any) -> list[int]:
        """Contexts of all rows after the step, as far as they are known when it is decided."""
        return [int(length) for length in batch.seq_lens_cpu.tolist()]

    def drafts_of(self, _: Any, decoding: list[Any]) -> dict[str, Any]:
        """What a step's row says of drafts."""
        return {}

    def step_s(self, num_prefill_tokens: int, num_decoding: int, context: int) -> float:
        latency = self.config["latency"]
        return float(
            latency["a"] + latency["b"] * num_prefill_tokens
            + latency["c"] * num_decoding + latency["d"] * context
        )  # fmt: skip
