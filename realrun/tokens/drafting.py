"""Speculative decoding by n-gram lookup on a real server: draft tokens, and which are accepted.

Drafts are the tokens that followed the same n-gram earlier in the request, as
`_find_longest_matched_ngram_and_propose_tokens` of vLLM 0.19.0 and 0.33.0
(v1/spec_decode/ngram_proposer.py) chooses them.

A row with k drafts computes 1 + k tokens in one forward pass, and the model samples after each of
them. A draft is accepted if it is the token that was sampled in its place, and all before it are;
so outputs are those of decoding without drafts (`RejectionSampler` of vLLM 0.33.0,
v1/sample/rejection_sampler.py, with greedy sampling).

All tokens are known when a step is decided, since vLLM looks n-grams up without async scheduling.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from realrun.tokens.outputs import Tokens
from sim.core.arrays import Int64
from sim.core.batch import Batch, StepOutput
from sim.core.errors import InvariantError
from sim.engine.acceptance import Speculation
from sim.engine.core import EngineCore
from sim.engine.request import Request

_NOTHING = np.empty(0, dtype=np.int64)


def ngram_drafts(tokens: Int64, shortest: int, longest: int, most: int) -> Int64:
    """Draft tokens to follow a request's tokens; empty if no n-gram is found.

    The last n tokens are looked up among the tokens before, for the largest n from `shortest` to
    `longest` that is found. If they are found in several places, the first one counts. The drafts
    are the tokens behind it: fewer than `most` if it is near the end.

    Example: 7 8 9 1 7 8 9 2 7 8 9, looked up with n up to 3, finds 7 8 9 at the beginning. The
    drafts are 1 7 8 if there are 3.

    Args:
        tokens: prompt and output of the request, so far.
        shortest: tokens of the shortest n-gram.
        longest: tokens of the longest n-gram.
        most: number of draft tokens, at most.
    """
    num_before = len(tokens) - 1
    # For each earlier token: how many tokens up to it equal the last ones of the request.
    num_equal = np.zeros(max(num_before, 0), dtype=np.int64)
    goes_on = np.ones(max(num_before, 0), dtype=np.bool_)
    for back in range(min(longest, num_before)):
        goes_on[:back] = False
        goes_on[back:] &= tokens[: num_before - back] == tokens[num_before - back]
        num_equal += goes_on
    if not len(num_equal) or num_equal.max() < shortest:
        return _NOTHING
    begin = int(num_equal.argmax()) + 1
    return tokens[begin : begin + most]


@dataclass(frozen=True, slots=True)
class DraftedSteps:
    """What each step after a request's first token drafted and accepted, in order.

    Attributes:
        proposed: draft tokens that the lookup found before the step.
        accepted: those of them that were verified and accepted.
    """

    proposed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


class NgramDrafting:
    """The draft tokens of all requests.

    Attributes:
        steps: by request, what each of its steps drafted and accepted.
    """

    def __init__(self, speculation: Speculation | None, tokens: Tokens) -> None:
        """`speculation`: None: there are no drafts; rows are counted one by one all the same."""
        self.steps: dict[str, DraftedSteps] = {}
        self._speculation = speculation
        self._tokens = tokens
        self._drafts: dict[str, Int64] = {}

    def attach(self, engine: EngineCore) -> None:
        """Set the engine, which knows the requests."""
        self._engine = engine

    def inputs(self, batch: Batch) -> list[Int64]:
        """The new tokens of each decode row: its last one, and its drafts."""
        counts = batch.drafts or [0] * len(batch.decode_rids)
        return [
            np.concatenate([self._output(self._engine.requests[rid])[-1:], self._first(rid, count)])
            for rid, count in zip(batch.decode_rids, counts, strict=True)
        ]

    def take(self, batch: Batch, sampled: Sequence[Int64]) -> StepOutput:
        """Verify the drafts of a step, and look up the next ones.

        Args:
            batch: the step's batch.
            sampled: for each row, the tokens that the model sampled after its last known token and
                after each draft; empty for a row that does not sample.
        """
        drafts = [0] * len(batch.prefill) + list(batch.drafts or [0] * len(batch.decode_rids))
        rids = [*(row.rid for row in batch.prefill), *batch.decode_rids]
        ended: list[str] = []
        num_sampled, num_proposed = [], []
        for rid, num_drafts, tokens in zip(rids, drafts, sampled, strict=True):
            num_new = self._verify(rid, num_drafts, tokens, ended) if len(tokens) else 0
            num_sampled.append(num_new)
            num_proposed.append(self._look_up(rid) if num_new else 0)
        return StepOutput(
            tuple(ended), tuple(num_sampled[len(batch.prefill) :]), tuple(num_proposed)
        )

    def forget(self, rid: str) -> None:
        """Drop the drafts of a request that has ended."""
        self._drafts.pop(rid, None)

    def _verify(self, rid: str, num_drafts: int, sampled: Int64, ended: list[str]) -> int:
        """Give a request its new tokens; returns how many. Adds it to `ended` if they end it."""
        request = self._engine.requests[rid]
        start, limit = request.num_generated, request.max_new_tokens
        wanted = sampled[: min(1 + num_drafts, limit - start)]
        follows = self._tokens.continuation(rid, start, wanted)
        num_accepted = 0
        for draft, token in zip(self._first(rid, num_drafts), follows[:-1], strict=False):
            if draft != token:
                break
            num_accepted += 1
        if self._tokens.extend(rid, start, follows[: 1 + num_accepted]):
            ended.append(rid)
        if self._speculation is not None:
            steps = self.steps.setdefault(rid, DraftedSteps())
            if start:
                steps.proposed.append(len(self._drafts[rid]))
                steps.accepted.append(num_accepted)
        return 1 + num_accepted

    def _look_up(self, rid: str) -> int:
        """Find the next drafts of a request; returns how many there are."""
        request, wanted = self._engine.requests[rid], self._speculation
        if wanted is None:
            return 0
        known = np.concatenate([request.spec.prompt.token_ids(), self._tokens.all_outputs(rid)])
        self._drafts[rid] = ngram_drafts(
            known, wanted.lookup_min, wanted.lookup_max, wanted.num_tokens
        )
        return len(self._drafts[rid])

    def _first(self, rid: str, count: int) -> Int64:
        drafts = self._drafts[rid][:count] if count else np.empty(0, dtype=np.int64)
        if len(drafts) < count:
            raise InvariantError(f"request {rid} verifies {count} drafts but has {len(drafts)}")
        return drafts

    def _output(self, request: Request) -> Int64:
        return self._tokens.output_ids(request.rid, request.num_generated)
