"""Requests as far as a server's log tells them, which names none.

SGLang's are told by its prefill and decode batches. Certain are: when batches were written, how
many requests were new in each, and how many tokens they had together; and how many tokens were
generated in all. A chunk of a long prompt counts as a new request in each of its batches. So after
a batch that fills the budget, one new request of the next batch is taken for a request of the one
before. Not certain are the lengths of single requests, which get the mean of their batch and of the
log, and how long a request had waited.

vLLM's are told by its lines of steps, with `--enable-logging-iteration-details`
(`compute_iteration_details` of vLLM 0.33.0, v1/utils.py): how many requests were in a step whose
prompt was being computed, how many that decoded, and the tokens of both. Certain are how many
prompts began in a step and how many tokens of them were computed, and how many requests ended
before the next step: those that no longer decode. Which of them ended is not known. The one that
began first is taken, so in every step as many requests run as in the log.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from sim.core.errors import InputError
from sim.server_log.records import FieldValue, Kind, LogEvent, Rank
from sim.server_log.text_lines import US_PER_S

# More than this are another tool's work, or a damaged number.
_MAX_REQUESTS = 10**6
_MAX_TOKENS = 10**7
_MAX_NUMBER = 10**15
# For the result of a step.
_MAX_WAIT_MS = 10_000
_US_PER_MS = 1_000


class SteppedRequests(NamedTuple):
    """Requests in the order of their times, each with what is known of it.

    Attributes:
        at_us: when the step was decided in which it began, or not much later.
        prompt_tokens: computed ones: the mean of the requests that began together.
        output_tokens: as if requests ended in the order in which they began.
        num_alone: requests that began alone, whose prompt is known.
        num_open: requests that had not ended.
    """

    at_us: "array[int]"
    prompt_tokens: "array[int]"
    output_tokens: "array[int]"
    num_alone: int
    num_open: int


class _Engine:
    """What one rank does.

    Attributes:
        step, at_us: number and time of its last line.
        decoding: requests that decode, in the order in which they began, each with the step that
            computed the end of its prompt. -1: its beginning is not in the log.
        begun: requests whose prompts are computed together; the first `num_done` of them are done.
        tokens: tokens of these prompts that were computed.
        is_cut: the last step was full, so the last of the prompts goes on in the next one.
    """

    def __init__(self) -> None:
        self.step, self.at_us = -1, 0
        self.decoding: deque[tuple[int, int]] = deque()
        self.begun: list[int] = []
        self.tokens = self.num_done = 0
        self.is_cut = False


class IterationCounter:
    """Takes the lines of steps in the order of the log; errors name the log by `name`.

    Attributes:
        budget: tokens of a step that is full; 0: not known, so prompts are not cut.
    """

    def __init__(self, name: str) -> None:
        self.budget = self.num_lines = 0
        self._name = name
        self._begin()

    def _begin(self) -> None:
        self._at_us, self._prompts, self._steps = array("q"), array("q"), array("q")
        self._engines: dict[Rank, _Engine] = {}
        self._num_alone = 0

    def take(self, event: LogEvent) -> None:
        """Take one line. Steps that are counted from 0 again are those of another start."""
        if event.at_us is None:
            return
        self.num_lines += 1
        fields = event.fields
        engine = self._engines.get(event.rank)
        if engine is not None and _whole(fields, "step") <= engine.step:
            self._begin()
            engine = None
        if engine is None:
            engine = self._engines[event.rank] = _Engine()
        prompts, rows = (_whole(fields, f"num_{what}_requests") for what in ("prefill", "decode"))
        if prompts + rows + len(self._at_us) > _MAX_REQUESTS:
            raise InputError(f"{self._name}: its steps have over {_MAX_REQUESTS:,} requests")
        self._end(engine, rows)
        self._prefill(engine, event.at_us, fields, prompts)
        engine.step, engine.at_us = _whole(fields, "step"), event.at_us

    def _end(self, engine: _Engine, rows: int) -> None:
        """Let the requests that began first end, until as many as the step has are left."""
        while len(engine.decoding) > rows:
            place, since = engine.decoding.popleft()
            if place >= 0:
                self._steps[place] = engine.step - since
        engine.decoding.extendleft([(-1, 0)] * (rows - len(engine.decoding)))

    def _prefill(
        self, engine: _Engine, at_us: int, fields: dict[str, FieldValue], prompts: int
    ) -> None:
        """Let requests begin, and those whose prompt is computed decode from the next step on."""
        tokens, rows = (_whole(fields, f"num_{what}_tokens") for what in ("prefill", "decode"))
        is_busy = engine.is_cut or _whole(fields, "num_decode_requests") > 0
        if not engine.is_cut:
            self._close(engine)
        num_new = max(prompts - engine.is_cut, 0)
        if num_new:
            # A step is decided when the line of the one before is written, or before that.
            idle_us = at_us - min(_whole(fields, "elapsed_ms"), _MAX_WAIT_MS) * _US_PER_MS
            begun_us = engine.at_us if is_busy else max(idle_us, engine.at_us)
            first = len(self._at_us)
            engine.begun += range(first, first + num_new)
            self._at_us.extend([begun_us] * num_new)
            self._prompts.extend([0] * num_new)
            self._steps.extend([0] * num_new)
        engine.tokens += tokens
        engine.is_cut = bool(prompts) and 0 < self.budget <= tokens + rows
        num_done = len(engine.begun) - engine.is_cut
        step = _whole(fields, "step")
        engine.decoding += [(place, step) for place in engine.begun[engine.num_done : num_done]]
        engine.num_done = max(engine.num_done, num_done)

    def _close(self, engine: _Engine) -> None:
        """Write down the prompts that were computed together, each as long as the others."""
        for place in engine.begun:
            self._prompts[place] = max(1, min(engine.tokens // len(engine.begun), _MAX_TOKENS))
        self._num_alone += len(engine.begun) == 1
        engine.begun, engine.tokens, engine.num_done = [], 0, 0

    def requests(self, accepted_tokens_per_step: float = 1.0) -> SteppedRequests:
        """All requests of the last start; drafts make a step yield more than one token."""
        num_open = 0
        for engine in self._engines.values():
            self._close(engine)
            num_open += len(engine.decoding)
            self._end(engine, 0)
        order = sorted(range(len(self._at_us)), key=self._at_us.__getitem__)
        # The first token of a request comes with its prompt.
        outputs = (1 + round(self._steps[place] * accepted_tokens_per_step) for place in order)
        return SteppedRequests(
            at_us=array("q", (self._at_us[place] for place in order)),
            prompt_tokens=array("q", (self._prompts[place] for place in order)),
            output_tokens=array("q", (min(tokens, _MAX_TOKENS) for tokens in outputs)),
            num_alone=self._num_alone,
            num_open=num_open,
        )


def _whole(fields: dict[str, FieldValue], name: str) -> int:
    value = fields.get(name, 0)
    return int(min(value, _MAX_NUMBER)) if isinstance(value, int | float) else 0


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

        Raises InputError: there are more, or they are longer, than any server's are.
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
