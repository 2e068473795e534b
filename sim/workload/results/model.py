"""What every reader of results returns: the requests of one measured run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sim.core.arrays import Int64

NO_PROMPTS = "prompts are not in the file: it is assumed that they share no prefix"


class KnownTokens(NamedTuple):
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
        known: ids for the beginning of its prompt; None: not known.
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
    known: KnownTokens | None = None
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
        told: other settings, for people to read.
        num_ranks: ranks that step together, of each server.
        tokens_at_a_time: how many tokens the server gave in a step, or sent in a message, on
            average; None: one, or not known.
    """

    engines: tuple[str, ...] = ()
    model: str = ""
    scheduler: Mapping[str, object] = field(default_factory=dict)
    told: Mapping[str, object] = field(default_factory=dict)
    num_ranks: int = 1
    tokens_at_a_time: float | None = None


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """The requests of a measured run, and remarks about them.

    Attributes:
        requests: in the order of the file.
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
