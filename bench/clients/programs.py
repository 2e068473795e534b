"""The clients, and the command line of each for the same traffic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.places import REPOSITORY

NUM_REQUESTS, RATE_RPS, PROMPT_TOKENS, OUTPUT_TOKENS = 60, 15, 200, 40
ENVIRONMENTS = REPOSITORY / ".clients"
_LAUNCH = str(REPOSITORY / "bench" / "clients" / "launch.py")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client runs.

    Attributes:
        url: the server, without `/v1`.
        tokenizer: the folder of a tokenizer.
        out: an empty folder for its results.
    """

    url: str
    tokenizer: Path
    out: Path


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """A client.

    Attributes:
        name: its row.
        environment: the folder in `.clients`.
        arguments: its command line after the environment's folder of programs.
        results: the file that it writes, in its folder.
        offline: whether it must be told not to look for the tokenizer at Hugging Face.
    """

    name: str
    environment: str
    arguments: Callable[[Place], Sequence[str]]
    results: str
    offline: bool = True


def _sglang(backend: str) -> Callable[[Place], Sequence[str]]:
    return lambda place: [
        "python", _LAUNCH, "sglang", "--backend", backend, "--base-url", place.url,
        "--dataset-name", "random-ids", "--random-input-len", str(PROMPT_TOKENS),
        "--random-output-len", str(OUTPUT_TOKENS), "--random-range-ratio", "1",
        "--num-prompts", str(NUM_REQUESTS), "--request-rate", str(RATE_RPS),
        "--tokenizer", str(place.tokenizer), "--flush-cache",
        "--output-file", str(place.out / "results.jsonl"), "--output-details",
    ]  # fmt: skip


def _vllm(backend: str, path: str) -> Callable[[Place], Sequence[str]]:
    return lambda place: [
        "python", _LAUNCH, "vllm", "--backend", backend, "--endpoint", path,
        "--base-url", place.url, "--dataset-name", "random",
        "--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS),
        "--num-prompts", str(NUM_REQUESTS), "--request-rate", str(RATE_RPS), "--ignore-eos",
        "--tokenizer", str(place.tokenizer), "--save-result", "--save-detailed",
        "--result-dir", str(place.out), "--result-filename", "results.json",
    ]  # fmt: skip


def _aiperf(place: Place) -> Sequence[str]:
    return [
        "aiperf", "profile", "-m", "bench-clients", "--url", place.url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", str(place.tokenizer), "--isl", str(PROMPT_TOKENS),
        "--isl-stddev", "0", "--osl", str(OUTPUT_TOKENS), "--osl-stddev", "0",
        "--extra-inputs", "ignore_eos:true", "--request-count", str(NUM_REQUESTS),
        "--request-rate", str(RATE_RPS), "--ui", "none", "--artifact-dir", str(place.out),
    ]  # fmt: skip


def _guidellm(place: Place) -> Sequence[str]:
    return [
        "guidellm", "run", "--backend", f"kind=openai_http,target={place.url}",
        "--profile", f"kind=constant,rate={RATE_RPS}",
        "--constraint", f"kind=max_requests,count={NUM_REQUESTS}",
        "--data",
        f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}",
        "--tokenizer", f"kind=huggingface_auto,model={place.tokenizer}",
        "--output", f"kind=json,path={place.out / 'benchmarks.json'}", "--disable-console",
    ]  # fmt: skip


PROGRAMS = (
    ClientProgram("sglang.benchmark.serving, sglang", "sglang", _sglang("sglang"), "results.jsonl"),
    ClientProgram("the same, sglang-oai", "sglang", _sglang("sglang-oai"), "results.jsonl"),
    ClientProgram(
        "the same, sglang-oai-chat", "sglang", _sglang("sglang-oai-chat"), "results.jsonl",
    ),
    ClientProgram(
        "vllm bench serve, openai", "vllm", _vllm("openai", "/v1/completions"), "results.json",
    ),
    ClientProgram(
        "the same, openai-chat", "vllm", _vllm("openai-chat", "/v1/chat/completions"),
        "results.json",
    ),
    # Told to be offline, it looks for a copy of a repository and takes no folder.
    ClientProgram("aiperf profile, chat", "aiperf", _aiperf, "profile_export.jsonl", offline=False),
    ClientProgram("guidellm run, chat", "guidellm", _guidellm, "benchmarks.json"),
)  # fmt: skip
