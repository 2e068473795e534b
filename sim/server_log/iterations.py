"""Requests as far as a vLLM server's log tells them: from its lines of steps.

With `--enable-logging-iteration-details` an engine writes a line for each step
(`compute_iteration_details` of vLLM 0.33.0, v1/utils.py): how many requests were in it whose prompt
was being computed, how many that decoded, and the tokens of both. No request is named. Certain are
how many prompts began in a step and how many tokens of them were computed, and how many requests
ended before the next step: those that no longer decode. Which of them ended is not known. The one
that began first is taken, so in every step as many requests run as in the log.
"""

from array import array
from collections import deque
from typing import NamedTuple

from sim.core.errors import InputError
from sim.server_log.records import FieldValue, LogEvent, Rank

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
        begun: requests whose prompts are computed together, and `num_done` of which are.
        tokens: what was computed of these.
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
        num_lines: lines that were taken.
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
