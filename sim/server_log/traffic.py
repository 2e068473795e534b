"""Requests as far as a server's log tells them: SGLang's from its prefill and decode batches.

vLLM's are told by its lines of steps, if it has them (`sim/server_log/iterations.py`).

SGLang's log does not name requests. Certain are: when batches were written, how many requests were
new in each, and how many tokens they had together; and how many tokens were generated in all. A
chunk of a long prompt counts as a new request in each of its batches: after a batch that fills the
budget, the first request is taken for the one before. Not certain are the lengths of single
requests, which get the mean of their batch and of the log, and how long a request had waited.
"""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from sim.core.errors import InputError
from sim.server_log.iterations import IterationCounter
from sim.server_log.line_times import US_PER_S
from sim.server_log.records import FieldValue, Kind, LogEvent, Rank

# More than this are another tool's work, or a damaged number.
_MAX_REQUESTS = 10**6
_MAX_TOKENS = 10**7
_ACCEPTED = "accepted_tokens_per_step"


_BATCHES = (
    "Rebuilt from the log. Certain: when batches began, how many requests and tokens they had, and"
    " {output:.4g} output tokens of a request in the mean. Not certain: the length of a single"
    " request, which has the mean of its batch and of the log; prefixes that requests share, of"
    " which there are none here; and how long a request had waited when its batch began."
    " {waited:,} of {number:,} began while others still waited"
)
_STEPS = (
    "Rebuilt from the log's lines of steps. Certain: how many requests began in each step and how"
    " many decoded, how many tokens of prompts it computed, and so {output:.4g} output tokens of a"
    " request in the mean, and the lengths of {alone:,} prompts, which began alone. Not certain:"
    " the length of another prompt, which has the mean of its step; the length of a single output:"
    " whichever request began first is taken for the one that ended; tokens that the prefix cache"
    " held, which are in no prompt here{hits}; and how long a request had waited when its step"
    " began. {open:,} of {number:,} had not ended{preempted}"
)


class LoggedRequests(NamedTuple):
    """Requests in the order of the log, each with what is known of it.

    Attributes:
        at_us: when the batch or the step began in which it did.
        prompt_tokens, output_tokens: its lengths, as `certainty` says.
        certainty: what of all this is certain, and what is not.
        num_posts: HTTP requests that sent something.
    """

    at_us: "array[int]"
    prompt_tokens: "array[int]"
    output_tokens: "array[int]"
    certainty: str
    num_posts: int


class _Chain:
    """Batches of which each goes on with the prompt that filled the one before."""

    def __init__(self) -> None:
        self.tokens = 0
        self.begun: list[tuple[int, int]] = []
        self.is_full = False


class RequestCounter:
    """Takes the events of a log in their order; errors name it by `name`.

    Attributes:
        decode_steps: decode steps between two lines of a rank, `decode_log_interval`.
        chunk: tokens of a batch or a step that is full; 0: prompts are not cut.
    """

    def __init__(self, name: str) -> None:
        self.decode_steps: int | None = None
        self.chunk = 0
        self._name = name
        self.begin()

    def begin(self) -> None:
        """Forget all requests so far: those with which a server tries itself as it starts."""
        self._at_us, self._prompt_tokens = array("q"), array("q")
        self._chains: dict[Rank, _Chain] = {}
        self._generated = 0.0
        self._num_waited = self._num_posts = 0
        self._accepted_tokens = self._accepted_weight = self._hit_pct = 0.0
        self._steps = IterationCounter(self._name)
        self._num_preempted = 0

    @property
    def accepted_tokens_per_step(self) -> float | None:
        """The mean over all steps, with the token that needs no draft; None: there are no drafts.

        A line counts as much as the rows, or the draft tokens, that it tells of.
        """
        if not self._accepted_weight:
            return None
        return self._accepted_tokens / self._accepted_weight

    def take(self, event: LogEvent) -> None:
        fields = event.fields
        if event.kind is Kind.PREFILL and event.at_us is not None:
            self._prefill(event.rank, event.at_us, fields)
        elif event.kind is Kind.DECODE:
            rows = _number(fields, "num_running")
            tokens = rows * _number(fields, _ACCEPTED, 1)
            self._generated += tokens * (self.decode_steps or 0)
            self._accept(fields, rows)
        elif event.kind is Kind.SPECULATION:
            self._accept(fields, _number(fields, "num_draft_tokens"))
        elif event.kind is Kind.ITERATION:
            self._steps.budget = self.chunk
            self._steps.take(event)
        elif event.kind is Kind.STATISTICS:
            self._hit_pct = _number(fields, "prefix_hit_pct", self._hit_pct)
            self._num_preempted += int(_number(fields, "num_preempted"))
        elif event.kind is Kind.HTTP:
            self._num_posts += fields["method"] == "POST"

    def _accept(self, fields: dict[str, FieldValue], weight: float) -> None:
        if _ACCEPTED in fields:
            self._accepted_tokens += weight * _number(fields, _ACCEPTED)
            self._accepted_weight += weight

    def _prefill(self, rank: Rank, at_us: int, fields: dict[str, FieldValue]) -> None:
        chain = self._chains.setdefault(rank, _Chain())
        num_new = int(_number(fields, "num_new_requests")) - chain.is_full
        new_tokens = int(_number(fields, "num_new_tokens"))
        if not chain.is_full:
            self._end(chain)
        chain.tokens += new_tokens + int(_number(fields, "num_cached_tokens"))
        if num_new > 0:
            chain.begun.append((at_us, num_new))
            self._num_waited += num_new if _number(fields, "num_waiting") else 0
        chain.is_full = 0 < self.chunk <= new_tokens

    def _end(self, chain: _Chain) -> None:
        """Write down the requests of a chain, each with as many tokens as the others."""
        num_requests = sum(count for _, count in chain.begun)
        if num_requests + len(self._at_us) > _MAX_REQUESTS:
            raise InputError(f"{self._name}: its batches have over {_MAX_REQUESTS:,} requests")
        for at_us, count in chain.begun:
            prompt_tokens = max(1, chain.tokens // num_requests)
            self._check(prompt_tokens)
            self._at_us.extend([at_us] * count)
            self._prompt_tokens.extend([prompt_tokens] * count)
        chain.tokens, chain.begun = 0, []

    def requests(self) -> LoggedRequests | None:
        """All requests so far; None: the log does not tell them.

        Raises:
            InputError: there are more, or they are longer, than any server's are.
        """
        if self._steps.num_lines:
            return self._of_steps()
        for chain in self._chains.values():
            self._end(chain)
        if not len(self._at_us) or not self.decode_steps:
            return None
        order = sorted(range(len(self._at_us)), key=self._at_us.__getitem__)
        at_us = array("q", (self._at_us[place] for place in order))
        prompt_tokens = array("q", (self._prompt_tokens[place] for place in order))
        # The first token of a request comes with its prefill.
        output = 1 + self._generated / len(at_us)
        self._check(output)
        certainty = _BATCHES.format(output=output, waited=self._num_waited, number=len(at_us))
        outputs = array("q", [max(1, round(output))] * len(at_us))
        return LoggedRequests(at_us, prompt_tokens, outputs, certainty, self._num_posts)

    def _of_steps(self) -> LoggedRequests | None:
        found = self._steps.requests(self.accepted_tokens_per_step or 1.0)
        number = len(found.at_us)
        if not number:
            return None
        hits = f" ({self._hit_pct:.0f} % of all, by its statistics)" if self._hit_pct else ""
        again = f", and {self._num_preempted:,} were preempted" if self._num_preempted else ""
        certainty = _STEPS.format(
            output=sum(found.output_tokens) / number,
            alone=found.num_alone,
            hits=hits,
            open=found.num_open,
            number=number,
            preempted=again,
        )
        return LoggedRequests(*found[:3], certainty, self._num_posts)

    def _check(self, num_tokens: float) -> None:
        if num_tokens > _MAX_TOKENS:
            reason = f"its batches have requests of over {_MAX_TOKENS:,} tokens"
            raise InputError(f"{self._name}: {reason}")


def spread_evenly(at_us: "array[int]", resolution_us: int) -> Iterator[int]:
    """Times in rising order, with those in which the clock did not differ spread over its unit."""
    begin = 0
    while begin < len(at_us):
        end = begin
        while end < len(at_us) and at_us[end] == at_us[begin]:
            end += 1
        unit = min(resolution_us, US_PER_S)
        for place in range(begin, end):
            yield at_us[begin] + unit * (place - begin) // (end - begin)
        begin = end


def _number(fields: dict[str, FieldValue], name: str, default: float = 0) -> float:
    value = fields.get(name, default)
    return value if isinstance(value, int | float) else default
