"""Reads the command line of a benchmark's client into a `workload` section.

Flags and their defaults are those of the versions that `sim.workload.kinds.bench` names.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from sim.core.errors import InputError
from sim.core.flags import Command, Flags, ReadFlags, plain_value
from sim.workload.bench_config import BenchConfig

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
    """Read the command line of any of the clients."""
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
