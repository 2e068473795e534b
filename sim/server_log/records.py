"""What a server's log gives, in the same words for all engines."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

# A number, a yes or no, a text, or one number for each position of a draft.
FieldValue = int | float | bool | str | tuple[float, ...]


class Kind(StrEnum):
    """What a line of the log is.

    `PREFILL`, `DECODE` and `RETRACT` are SGLang's, `ITERATION`, `STATISTICS` and `SPECULATION`
    vLLM's. All but the last three are events with fields; `SETTINGS` are lines about the server,
    `CUT` is a file's last line without an end, and `OTHER` is everything else.
    """

    PREFILL = "prefill batch"
    DECODE = "decode batch"
    RETRACT = "retraction"
    ITERATION = "iteration"
    STATISTICS = "statistics"
    SPECULATION = "speculation"
    HTTP = "HTTP request"
    SETTINGS = "settings"
    CUT = "cut off"
    OTHER = "other"


class Rank(NamedTuple):
    """The rank that wrote a line, as far as the line names it.

    Attributes:
        dp, pp, tp, ep: data parallel, pipeline, tensor parallel and expert parallel rank.
        num_engines: how many DP ranks the line is a sum of; 1: it is of one.
    """

    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None
    num_engines: int = 1


NO_RANK = Rank()


class LogEvent(NamedTuple):
    """One line that says what the server did.

    Attributes:
        line: its number in all files together, counted from 1.
        at_us: when the line was written, in microseconds; None if the line has no time. It is
            counted from 1970 as if the log's clock were UTC: a log does not name its time zone.
            vLLM's log has no year; its times are those of 1972. The resolution is the log's
            (`ServerLog.resolution_us`): often a second.
        fields: what the line says, as far as it does. The names are in the engine's table
            (`sim/sglang/log.py`, `sim/vllm/log.py`) and have units.
    """

    kind: Kind
    line: int
    at_us: int | None
    rank: Rank
    fields: dict[str, FieldValue]


@dataclass(slots=True)
class MeasuredPool:
    """The KV pool that the server measured when it started; None: the log does not say.

    Attributes:
        num_tokens: tokens that it holds: of the smallest rank, if several say so.
        num_blocks: blocks, if the log counts them.
        memory_gib: memory of one rank.
    """

    num_tokens: int | None = None
    num_blocks: int | None = None
    memory_gib: float | None = None


@dataclass(slots=True)
class LoggedServer:
    """What the log says about the server; complete when all of the log was read.

    Attributes:
        version: the engine's version, empty if the log does not have it.
        flags: its settings by the names of launch flags, with `_` for `-`.
        has_all_flags: `flags` has those that were not given, too, with their defaults.
        flags_from: where they are from: the words before them, and the line.
        settings: what the engine made of them, and limits that it found out.
        weights_gib, graphs_gib: memory for weights and CUDA graphs of one rank.
        graph_sizes: rows of the decode batches that have a CUDA graph.
        is_ready: SGLang has tried itself with requests of its own, and takes those of others.
    """

    engine: str
    version: str = ""
    flags: dict[str, object] = field(default_factory=dict)
    has_all_flags: bool = False
    flags_from: str = ""
    settings: dict[str, object] = field(default_factory=dict)
    kv_pool: MeasuredPool = field(default_factory=MeasuredPool)
    weights_gib: float | None = None
    graphs_gib: float | None = None
    graph_sizes: tuple[int, ...] = ()
    is_ready: bool = False

    @property
    def model(self) -> str:
        """The model as the launch named it: a Hugging Face id or a path; empty: not known."""
        for key in ("model_path", "model", "model_tag"):
            for values in (self.flags, self.settings):
                if isinstance(name := values.get(key), str) and name:
                    return name
        return ""
