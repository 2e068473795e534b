"""The section of a recorded trace, and which keys go with which format."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.validation.strict_model import KeysError
from sim.workload.arrivals import Arrivals, ThinkTime
from sim.workload.common_config import CommonConfig
from sim.workload.limits import MAX_REQUESTS
from sim.workload.traces.formats import TraceFormat

DEFAULT_BLOCK_SIZE = 512
BAILIAN_BLOCK_SIZE = 16
DEFAULT_CHARACTERS_PER_TOKEN = 4.0

_TEXT = ("sharegpt", "lmsys")
# Keys that only some formats have.
_FORMATS_OF_KEY: dict[str, tuple[str, ...]] = {
    "block_size": ("mooncake", "bailian"),
    "arrivals": (*_TEXT, "weka", "mooncake", "autobench"),
    "think_s": _TEXT,
    "max_turns": _TEXT,
    "tokenizer": _TEXT,
    "characters_per_token": _TEXT,
    "max_pause_s": ("mooncake", "weka"),
}
# Keys that change what a reader returns; with equal ones a file is read once.
READ_KEYS = (
    "format", "limit", "block_size", "max_turns", "tokenizer", "characters_per_token",
)  # fmt: skip


class TraceConfig(CommonConfig):
    """A recorded trace. docs/reference/trace-formats.md has the fields of each format."""

    kind: Literal["trace"]
    format: TraceFormat
    """Format of the file."""
    path: Annotated[str, Field(min_length=1)]
    """The file, plain or gzip. With format `weka` also a folder of such files."""
    limit: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] | None = None
    """Take only this many requests, from the beginning. Unit: requests."""
    time_scale: Annotated[float, Field(gt=0, le=10**6)] = 1.0
    """Recorded arrival times and pauses are multiplied by this: 0.25 is four times as fast."""
    block_size: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """Tokens that one block id of the trace stands for. Only with formats `mooncake` (512 without
    it) and `bailian` (16 without it). Unit: tokens."""
    arrivals: Arrivals | None = None
    """When requests, or conversations, begin, if the file does not say it: formats `sharegpt`,
    `lmsys`, `weka`, `mooncake` and `autobench`. Without it: all at time 0."""
    think_s: ThinkTime | None = None
    """Pause between an answer and the next request of the conversation. Only with formats
    `sharegpt` and `lmsys`. Without it: none. Unit: s."""
    max_pause_s: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Longer recorded pauses of a session become this one, before `time_scale`. Only with formats
    `mooncake` and `weka`. Without it: no limit. Unit: s."""
    max_turns: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] | None = None
    """Take only this many requests of each conversation: 1 is what the benchmarks of SGLang and
    vLLM send. Only with formats `sharegpt` and `lmsys`. Unit: requests."""
    tokenizer: Annotated[str, Field(min_length=1)] | None = None
    """A Hugging Face `tokenizer.json`, or its folder, which counts the tokens of texts. Needs the
    package `tokenizers`. Only with formats `sharegpt` and `lmsys`."""
    characters_per_token: Annotated[float, Field(ge=0.1, le=100)] | None = None
    """Without a tokenizer, a text has this many characters for each token: 4 without this key. Only
    with formats `sharegpt` and `lmsys`."""

    @model_validator(mode="after")
    def _keys_go_with_format(self) -> Self:
        for key, formats in _FORMATS_OF_KEY.items():
            if getattr(self, key) is not None and self.format not in formats:
                several = "s" if len(formats) > 1 else ""
                names = " and ".join([", ".join(formats[:-1]), formats[-1]][several == "" :])
                reason = f"{key} goes with format{several} {names} only, not {self.format}"
                raise KeysError(reason, key, "format")
        if self.tokenizer is not None and self.characters_per_token is not None:
            raise KeysError(
                "tokenizer and characters_per_token exclude each other",
                "tokenizer",
                "characters_per_token",
            )
        return self
