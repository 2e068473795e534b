"""What readers of results return, the requests of one measured run; and nested JSON.

Each value of nested JSON knows where it is, so that errors name it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload import MAX_TOKENS
from sim.workload.traces.files import TextLine, parse_value, read_lines
from sim.workload.traces.rows import shown, why_not_whole

NO_PROMPTS = "prompts are not in the file: it is assumed that they share no prefix"


class PromptIds(NamedTuple):
    """Ids for the beginning of a prompt. Two prompts share the prefix in which their ids agree.

    Attributes:
        ids: each stands for `unit` tokens. Together they may cover only a part of the prompt.
        unit: number of tokens, equal for all requests of a run.
    """

    ids: Int64
    unit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRequest:
    """One request. Times are in ns, counted from the same moment for all requests of the run.

    Attributes:
        arrival_ns: when it was sent, or when it reached the server, depending on the format.
        scheduled_ns: when it was first in a batch; None: not known.
        first_token_ns: None: not known, or there was no token.
        finish_ns: time of its last token; None if it failed.
        prompt_tokens: None: not known.
        output_tokens: tokens generated, even if the request failed later; None: not known.
        failure: why it did not finish; empty if it finished.
        prompt_ids: ids for the beginning of its prompt; None: not known.
        answer: token ids of its output; None: not known.
        max_new_tokens: the client's limit; None: not known.
        ignore_eos: the server generated `max_new_tokens` tokens, even after an end token.
        priority: the priority that the client gave; None: none.
        session: the conversation that it is a turn of; empty: none.
    """

    rid: str
    arrival_ns: int
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    finish_ns: int | None = None
    prompt_tokens: int | None
    output_tokens: int | None
    failure: str = ""
    prompt_ids: PromptIds | None = None
    answer: Int64 | None = None
    max_new_tokens: int | None = None
    ignore_eos: bool = False
    priority: int | None = None
    session: str = ""

    def moved(self, by_ns: int) -> "ImportedRequest":
        """The same request that much later, or earlier."""
        scheduled_ns, first_token_ns, finish_ns = (
            None if time_ns is None else time_ns + by_ns
            for time_ns in (self.scheduled_ns, self.first_token_ns, self.finish_ns)
        )
        return replace(
            self,
            arrival_ns=self.arrival_ns + by_ns,
            scheduled_ns=scheduled_ns,
            first_token_ns=first_token_ns,
            finish_ns=finish_ns,
        )

    @property
    def has_lengths(self) -> bool:
        """Whether it can be replayed: both lengths are known, and not 0."""
        return bool(self.prompt_tokens) and bool(self.output_tokens)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a file says about server and client, besides the requests.

    Attributes:
        engines: names of the server's software in the file, the most reliable first. A name that
            begins with a family's name means that family. Empty: the family is not known.
        model: name of the served model; empty: not known.
        scheduler: settings, by their keys in the `scheduler` section of the server's family.
        other_settings: further ones, by any names; they are only shown.
        num_ranks: ranks that step together, of each server.
        tokens_at_a_time: how many tokens the server gave in a step, or sent in a message, on
            average; None: one, or not known.
        version: the server's version, as the file has it; empty: not known.
    """

    engines: tuple[str, ...] = ()
    model: str = ""
    scheduler: Mapping[str, object] = field(default_factory=dict)
    other_settings: Mapping[str, object] = field(default_factory=dict)
    num_ranks: int = 1
    tokens_at_a_time: float | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """The requests of a measured run, and remarks about them.

    Attributes:
        facts: the settings that the file has.
        notes: remarks for the reader of the results, one line each.
        left_out: entries of the file that were not imported, as `name: reason`.
    """

    requests: list[ImportedRequest]
    facts: ServerFacts = ServerFacts()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class ReadOptions(NamedTuple):
    """A user's options for reading a file.

    Attributes:
        line: the line of the run to read, if a file has several runs; None: it has one.
        draw_arrivals: seed for drawing arrival times if the file lacks them; None: do not draw.
    """

    line: int | None = None
    draw_arrivals: int | None = None


# More tokens than this at a time: the server speculates, or sends several in a message.
_BUNDLE = 1.1


def tokens_at_a_time(num_tokens: int, num_messages: int) -> float | None:
    """How many tokens came in a message, on average; None: one, or there was no message."""
    bundled = num_tokens > _BUNDLE * num_messages > 0
    return num_tokens / num_messages if bundled else None


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value of a JSON document.

    Attributes:
        line: the document; it may be spread over many lines, of which this is the first.
        where: the keys and indices that lead to the value.
        value: the value; None also if the key is missing.
    """

    line: TextLine
    where: str
    value: object

    def error(self, reason: str) -> InputError:
        return self.line.error(self.where or "document", reason)

    def __getitem__(self, key: object) -> "JsonNode":
        """The value of a key of an object; None if the key is missing."""
        if self.value is not None and not isinstance(self.value, dict):
            raise self.error(f"{shown(self.value)} is not an object")
        found = self.value.get(key) if isinstance(self.value, dict) else None
        return JsonNode(self.line, f"{self.where}.{key}" if self.where else str(key), found)

    def items(self) -> Iterator["JsonNode"]:
        """The items of a list; a list that is missing has none."""
        if self.value is not None and not isinstance(self.value, list):
            raise self.error(f"{shown(self.value)} is not a list")
        for place, value in enumerate(self.value or ()):
            yield JsonNode(self.line, f"{self.where}[{place}]", value)

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else ""

    def tokens(self) -> int | None:
        value = self.value
        if isinstance(value, Decimal) and value == value.to_integral_value():
            value = int(value)
        if value is None or (type(value) is int and 0 <= value <= MAX_TOKENS):
            return value
        raise self.error(why_not_whole(self.value, 0, MAX_TOKENS))

    def time_ns(self, unit_ns: int = NS_PER_S) -> int | None:
        value = self.value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise self.error(f"{shown(value)} is not a finite number")
        if not 0 <= value <= MAX_TIME_NS // unit_ns:
            raise self.error(f"{shown(value)} is not a possible time")
        return round(value * unit_ns)

    def needed(self) -> "JsonNode":
        """The node itself. Raises InputError if its value is missing."""
        if self.value is None:
            raise self.error("missing")
        return self


def read_node(path: Path) -> JsonNode:
    """The only JSON document of a file."""
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"{path}: holds no results")
    whole = lines[0]._replace(text="\n".join(line.text for line in lines))
    return JsonNode(whole, "", parse_value(whole))
