"""The `workload` section with `kind: bench`, and how a benchmark's command line is read into it.

Flags and their defaults are those of the versions that `sim.workload.kinds.bench` names.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from sim.core.errors import InputError
from sim.core.flags import Command, Flags, ReadFlags, plain_value
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
_RANGE_RATIOS: dict[Client, float] = {"inferencex": 0.8}


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
        """`range_ratio`, or what the client, or InferenceX's scripts, have without it."""
        if self.range_ratio is not None:
            return self.range_ratio
        return _RANGE_RATIOS.get(self.client, 0.0)

    @property
    def num_warmups(self) -> int:
        """`warmup_requests`, or what the client, or InferenceX's scripts, have without it."""
        if self.warmup_requests is not None:
            return self.warmup_requests
        if self.client == "inferencex":
            return 2 * (self.max_concurrency or 0)
        return 1 if self.client == "sglang" else 0


_WHERE = "--command"
# Names of latencies in a client's `--goodput`, and of their limits in the section `slo`.
_GOODPUT = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2el": "e2e_latency_ms"}
# What SGLang's client took for a seed before version 0.5.23.
_OLD_SGLANG_SEED = 1


class _Program(NamedTuple):
    """A client: its flags, and the settings it has without a flag."""

    flags: Flags
    defaults: Mapping[str, Any]


# fmt: off
_COMMON = (
    "host", "port", "base-url", "backend", "endpoint", "model", "tokenizer", "trust-remote-code",
    "served-model-name", "disable-tqdm", "save-result", "result-dir", "result-filename",
    "save-detailed", "metadata", "percentile-metrics", "metric-percentiles",
    "ready-check-timeout-sec", "label", "header", "dataset-path", "append-result",
    "request-id-prefix", "tokenizer-mode",
    "temperature", "top-p", "top-k", "extra-request-body", "tag", "output-file", "output-details",
    "return-logprob", "cache-report", "plot-throughput", "best-of", "random-num-workers",
    "endpoint-type",
)
_SHARED = {
    "num-prompts": "num_prompts", "random-input-len": "input_len",
    "random-output-len": "output_len", "random-range-ratio": "range_ratio",
    "request-rate": "request_rate", "max-concurrency": "max_concurrency", "seed": "seed",
    "dataset-name": "dataset_name",
}
_LISTS = {"goodput": "goodput"}
_PROGRAMS = {
    "sglang": _Program(
        Flags(
            {**_SHARED, "warmup-requests": "warmup_requests"},
            {"flush-cache": ("flush_cache", True), "disable-ignore-eos": ("stops_early", True)},
            _LISTS, (*_COMMON, "flush-cache-timeout", "tokenize-prompt", "apply-chat-template"),
        ),
        {"dataset_name": "sharegpt", "num_prompts": 1000, "input_len": 1024, "output_len": 1024,
         "range_ratio": 0.0, "seed": 42, "warmup_requests": 1},
    ),
    "vllm": _Program(
        Flags(
            {**_SHARED, "input-len": "input_len", "output-len": "output_len",
             "random-prefix-len": "prefix_len", "burstiness": "burstiness",
             "num-warmups": "warmup_requests"},
            {}, _LISTS, (*_COMMON, "ignore-eos"),
        ),
        {"dataset_name": "random", "num_prompts": 1000, "input_len": 1024, "output_len": 128,
         "range_ratio": 0.0, "seed": 0, "warmup_requests": 0},
    ),
    "inferencex": _Program(
        Flags(
            {**_SHARED, "random-prefix-len": "prefix_len", "burstiness": "burstiness",
             "num-warmups": "warmup_requests"},
            {"use-chat-template": ("chat_template", True)}, _LISTS, (*_COMMON, "ignore-eos"),
        ),
        {"dataset_name": "random", "num_prompts": 1000, "input_len": 1024, "output_len": 128,
         "range_ratio": 1.0, "seed": 0, "warmup_requests": 0},
    ),
    "aiperf": _Program(
        Flags(
            {"prompt-input-tokens-mean": "input_len", "synthetic-input-tokens-mean": "input_len",
             "isl": "input_len", "prompt-input-tokens-stddev": "input_len_stddev",
             "synthetic-input-tokens-stddev": "input_len_stddev", "isl-stddev": "input_len_stddev",
             "prompt-output-tokens-mean": "output_len", "output-tokens-mean": "output_len",
             "osl": "output_len", "prompt-output-tokens-stddev": "output_len_stddev",
             "output-tokens-stddev": "output_len_stddev", "osl-stddev": "output_len_stddev",
             "concurrency": "max_concurrency", "request-rate": "request_rate",
             "arrival-pattern": "arrival_pattern", "request-rate-mode": "arrival_pattern",
             "arrival-smoothness": "burstiness", "vllm-burstiness": "burstiness",
             "request-count": "num_prompts", "num-requests": "num_prompts",
             "num-dataset-entries": "dataset_entries", "num-prompts": "dataset_entries",
             "warmup-request-count": "warmup_requests",
             "num-warmup-requests": "warmup_requests", "random-seed": "seed"},
            {}, {},
            ("model", "model-names", "m", "url", "u", "endpoint", "endpoint-type", "streaming",
             "tokenizer", "extra-inputs", "artifact-dir", "output-artifact-dir", "ui", "ui-type",
             "profile-export-file", "header", "H", "verbose", "v", "use-server-token-count"),
        ),
        {"input_len": 550},
    ),
}
# fmt: on
_NAMES = {
    "sglang": (("sglang.bench_serving",), ("sglang.benchmark.serving",), ("bench_serving.py",)),
    "vllm": (("vllm", "bench", "serve"),),
    "inferencex": (("benchmark_serving.py",),),
    "aiperf": (("aiperf", "profile"),),
}


class ReadBench(NamedTuple):
    """What a client's command line says.

    Attributes:
        slo: limits of the client's goodput.
        ignored, unknown: flags; see `ReadFlags`.
        notes: a sentence each, about what is not as the command says.
    """

    workload: dict[str, Any]
    slo: dict[str, float]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]


def read_bench_command(command: Command) -> ReadBench:
    for client, names in _NAMES.items():
        for name in names:
            if (words := command.after(name)) is not None:
                flags = _PROGRAMS[client].flags.read(words, _WHERE)
                return _read(client, flags)
    known = ", ".join(" ".join(names[0]) for names in _NAMES.values())
    raise InputError(f"{_WHERE}: is of none of the known clients: {known}")


def _read(client: str, flags: ReadFlags) -> ReadBench:
    given = {
        key: plain_value(value) if isinstance(value, str) else value
        for key, value in flags.values.items()
    }
    slo = _limits(given.pop("goodput", ()))
    notes = list(_notes(client, given))
    values = {"client": client, **_PROGRAMS[client].defaults, **given}
    for key in ("stops_early", "chat_template"):
        values.pop(key, None)
    if client == "aiperf":
        _complete_aiperf(values)
    dataset = values.get("dataset_name", "random")
    if dataset != "random" and (client != "sglang" or dataset != "random-ids"):
        raise InputError(
            f"{_WHERE}: --dataset-name {dataset}: only the lengths of random can be drawn"
        )
    if client != "sglang" or dataset == "random":
        values.pop("dataset_name", None)
    if values.get("request_rate") == "inf":
        del values["request_rate"]
        values.pop("burstiness", None)
    workload = {"kind": "bench", **values}
    try:
        BenchConfig.model_validate(workload)
    except ValidationError as error:
        first = error.errors()[0]
        at = "".join(f"{part}: " for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{_WHERE}: {at}{reason}") from None
    return ReadBench(workload, slo, flags.ignored, flags.unknown, tuple(notes))


def _notes(client: str, given: Mapping[str, Any]) -> list[str]:
    notes = []
    if client == "sglang" and "seed" not in given:
        notes.append(
            f"the command has no --seed: 42 is the default of SGLang 0.5.23; until 0.5.9 it was"
            f" {_OLD_SGLANG_SEED}"
        )
    if client == "aiperf" and "seed" not in given:
        notes.append("the command has no --random-seed: AIPerf then draws anew in each run")
    if given.get("stops_early"):
        notes.append("--disable-ignore-eos: answers are as long as drawn here, not as the model's")
    if given.get("chat_template"):
        notes.append(
            "--use-chat-template: set workload.chat_template_tokens to the template's tokens"
        )
    return notes


def _complete_aiperf(values: dict[str, Any]) -> None:
    """AIPerf's settings that depend on others."""
    if "output_len" not in values:
        raise InputError(f"{_WHERE}: --osl: missing; without it the model ends its answers")
    if "request_rate" not in values:
        values.setdefault("max_concurrency", 1)
    values.setdefault("num_prompts", max(10, 2 * int(values.get("max_concurrency", 1))))
    values.setdefault("warmup_requests", 0)


def _limits(pairs: Any) -> dict[str, float]:
    limits = {}
    for pair in pairs:
        name, _, limit = pair.partition(":")
        value = plain_value(limit)
        if name not in _GOODPUT or isinstance(value, str):
            raise InputError(f"{_WHERE}: --goodput {pair}: must be {', '.join(_GOODPUT)} : number")
        limits[_GOODPUT[name]] = float(value)
    return limits
