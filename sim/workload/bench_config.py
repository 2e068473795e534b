"""The `workload` section with `kind: bench`: the settings of a benchmark's client."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.validation import KeysError, StrictModel
from sim.workload import MAX_RATE_RPS, MAX_REQUESTS, MAX_TOKENS
from sim.workload.lengths import Length

Client = Literal["sglang", "vllm", "inferencex", "aiperf"]

# numpy's older generator takes no larger seed.
MAX_SEED = 2**32 - 1
_Count = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]
_Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]

# The keys that only some clients have.
_ONLY: dict[str, tuple[Client, ...]] = {
    "range_ratio": ("sglang", "vllm", "inferencex"),
    "input_len_stddev": ("aiperf",),
    "output_len_stddev": ("aiperf",),
    "prefix_len": ("vllm", "inferencex"),
    "chat_template_tokens": ("inferencex",),
    "dataset_name": ("sglang",),
    "dataset_entries": ("aiperf",),
    "vocab_size": ("sglang", "inferencex"),
    "burstiness": ("vllm", "inferencex", "aiperf"),
    "arrival_pattern": ("aiperf",),
    "flush_cache": ("sglang",),
}
_RANGE_RATIOS: dict[Client, float] = {"sglang": 0.0, "vllm": 0.0, "inferencex": 0.8, "aiperf": 1.0}


class BenchConfig(StrictModel):
    """The requests of a serving benchmark, exactly as its client draws and sends them.

    Every answer is as long as drawn, as with `ignore_eos`. docs/how-to/benchmark.md says what each
    client does, and how to import its command line.
    """

    kind: Literal["bench"]
    client: Client
    """The program: `sglang.bench_serving`, `vllm bench serve`, InferenceX's
    `benchmark_serving.py`, or `aiperf profile`."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    """Seed of the client's draws. Without it: the scenario's `seed`."""
    num_prompts: _Count
    """How many requests are measured. Unit: requests."""
    input_len: Length
    """Prompt length: the largest with `sglang` and `inferencex`, the mean with `vllm` and
    `aiperf`. Unit: tokens."""
    output_len: Length
    """Output length, likewise. Unit: tokens."""
    range_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """How far lengths spread. With `sglang` and `inferencex`, the smallest length as a share of
    the largest. With `vllm`, how far lengths may be below and above the mean, as a share of the
    mean; less than 1. Not with `aiperf`. Without it: 0.8 with `inferencex`, else 0. Unit:
    share."""
    input_len_stddev: _Tokens = 0
    """Standard deviation of prompt lengths. Only with `aiperf`. Unit: tokens."""
    output_len_stddev: _Tokens = 0
    """Standard deviation of output lengths. Only with `aiperf`. Unit: tokens."""
    prefix_len: _Tokens = 0
    """Tokens that every prompt begins with, in addition to `input_len`. Only with `vllm` and
    `inferencex`. Unit: tokens."""
    special_tokens: Annotated[int, Field(ge=0, le=100)] = 0
    """Tokens that the model's tokenizer adds to each prompt, for example 1 for a token that marks
    the beginning. Unit: tokens."""
    chat_template_tokens: _Tokens = 0
    """Tokens that the chat template adds to a prompt, part of `input_len`. Only with `inferencex`,
    which has them with `--use-chat-template`. Unit: tokens."""
    vocab_size: Annotated[int, Field(ge=2, le=10**9)] | None = None
    """Size of the tokenizer's vocabulary. Only with `sglang` and `inferencex`. It is required where
    the client draws token ids before lengths or gaps: with a `request_rate` for `inferencex` and
    for `dataset_name: random-ids`, and with `inferencex` and a `prefix_len`. Unit: tokens."""
    dataset_name: Literal["random", "random-ids"] = "random"
    """Where prompts come from: ShareGPT's texts, or any token ids. Only with `sglang`."""
    dataset_entries: _Count | None = None
    """Different prompts. Requests take them in turn, warm-up requests first. Only with `aiperf`.
    Without it: `num_prompts`. Unit: prompts."""
    max_concurrency: _Count | None = None
    """Most requests under way at a time. When one is over, the client sends the next at once.
    Without it: no limit. Unit: requests."""
    request_rate: Annotated[float, Field(gt=0, le=MAX_RATE_RPS)] | None = None
    """Mean rate at which requests are asked for. Without it: all at once. Unit: requests/s."""
    burstiness: Annotated[float, Field(gt=0, le=10**6)] | None = None
    """Shape of the gamma distribution of the gaps between requests: less than 1 gives bursts, more
    gives evener gaps. Not with `sglang`. Without it: 1, Poisson arrivals."""
    arrival_pattern: Literal["poisson", "gamma", "constant"] | None = None
    """The distribution of the gaps. Only with `aiperf`. Without it: `gamma` with `burstiness`, else
    `poisson`."""
    warmup_requests: Annotated[int, Field(ge=0, le=MAX_REQUESTS)] | None = None
    """Requests that are sent before the measured ones, and are over before those begin. No figure
    counts them. With `aiperf` they are the first prompts, with all others the first prompt again
    and again. Without it: 1 with `sglang`, twice `max_concurrency` with `inferencex`, else 0. Unit:
    requests."""
    flush_cache: bool = False
    """The cache is emptied after the warm-up. Only with `sglang`."""
    runs_before: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often the same client ran on this server before, with the same requests, and nobody
    flushed the cache. No figure counts these runs. Not with `flush_cache`. Unit: runs."""

    @model_validator(mode="after")
    def _keys_go_with_client(self) -> Self:
        for key, clients in _ONLY.items():
            if key in self.model_fields_set and self.client not in clients:
                raise KeysError(
                    f"{key} goes with client {', '.join(clients)}, not {self.client}",
                    key,
                    "client",
                )
        if self.flush_cache and self.runs_before:
            raise KeysError(
                "flush_cache leaves nothing of runs_before: give one of them",
                "flush_cache",
                "runs_before",
            )
        if self.client == "vllm" and self.range_ratio == 1:
            raise KeysError("range_ratio must be less than 1 with client vllm", "range_ratio")
        if self.chat_template_tokens >= self.input_len:
            raise KeysError(
                f"chat_template_tokens {self.chat_template_tokens} leaves nothing of input_len"
                f" {self.input_len}",
                "chat_template_tokens",
                "input_len",
            )
        return self

    @model_validator(mode="after")
    def _arrivals_go_together(self) -> Self:
        for key in ("burstiness", "arrival_pattern"):
            if getattr(self, key) is not None and self.request_rate is None:
                raise KeysError(f"{key} needs a request_rate", key, "request_rate")
        if self.burstiness is not None and self.arrival_pattern not in {None, "gamma"}:
            raise KeysError(
                f"burstiness goes with arrival_pattern gamma, not {self.arrival_pattern}",
                "burstiness",
                "arrival_pattern",
            )
        if self.vocab_size is None and (needs := self._needs_vocab_size()):
            raise KeysError(f"{needs} needs vocab_size: the client draws tokens first", needs)
        return self

    def _needs_vocab_size(self) -> str | None:
        """The key for which the client draws after it drew tokens."""
        if self.client == "inferencex" and self.prefix_len:
            return "prefix_len"
        draws_tokens = self.client == "inferencex" or self.dataset_name == "random-ids"
        return "request_rate" if draws_tokens and self.request_rate is not None else None

    @property
    def spread(self) -> float:
        """`range_ratio`, or what the client has without it."""
        return _RANGE_RATIOS[self.client] if self.range_ratio is None else self.range_ratio

    @property
    def num_warmups(self) -> int:
        """`warmup_requests`, or what the client has without it."""
        if self.warmup_requests is not None:
            return self.warmup_requests
        if self.client == "inferencex":
            return 2 * (self.max_concurrency or 0)
        return 1 if self.client == "sglang" else 0
