"""What every reader of results returns: the requests of one measured run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sim.core.arrays import Int64

NO_PROMPTS = "prompts are not in the file: no two of them are taken to share a prefix"


class KnownTokens(NamedTuple):
    """Ids for the beginning of a prompt; two prompts share what their ids have in common.

    Attributes:
        ids: each id stands for `unit` tokens; they may stand for fewer tokens than the prompt has.
        unit: tokens that an id stands for; equal for all requests of a run.
    """

    ids: Int64
    unit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRequest:
    """One request. Times are ns since one moment for the whole run.

    Attributes:
        arrival_ns: when it was sent, or when it reached the server, depending on the format.
        scheduled_ns: when it was first in a batch; None: not known.
        first_token_ns: None: not known, or there was no token.
        finish_ns: time of its last token; None if it failed.
        prompt_tokens: None: not known.
        output_tokens: tokens generated, also by a request that failed later; None: not known.
        failure: why it did not finish; empty if it finished.
        known: ids for the beginning of its prompt; None: not known.
        answer: its output's token ids; None: not known.
        max_new_tokens: the client's limit; None: not known.
        ignore_eos: generate `max_new_tokens`, even after an end token.
        priority: as submitted.
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

    @property
    def has_lengths(self) -> bool:
        """Whether it can be replayed: both lengths are known, and not 0."""
        return bool(self.prompt_tokens) and bool(self.output_tokens)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a file says of server and client besides the requests.

    Attributes:
        engines: names of the server's software as the file has them, the surest first; its family
            is the first that one of them begins with. Empty: it may be any.
        model: the served model's name, empty if it is not told.
        scheduler: settings by the names of the scenario's section `scheduler`, of its family.
        told: other settings, for people to read.
    """

    engines: tuple[str, ...] = ()
    model: str = ""
    scheduler: Mapping[str, object] = field(default_factory=dict)
    told: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """The requests of a measured run, and what cannot be told by numbers.

    Attributes:
        requests: in the order of the file.
        facts: settings, as far as the file tells.
        notes: what a reader of the results should know, a line each.
        left_out: what of the file became no request at all, and why: `name: reason`.
    """

    requests: list[ImportedRequest]
    facts: ServerFacts = ServerFacts()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class ReadOptions(NamedTuple):
    """What a user may say about a file.

    Attributes:
        line: which run, of a file with one on each of several lines; None: there is only one.
        draw_arrivals: seed to draw arrivals with that the file does not tell; None: do not.
    """

    line: int | None = None
    draw_arrivals: int | None = None
