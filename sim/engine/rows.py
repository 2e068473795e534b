"""Servers whose decode rows do not all get one token in each step.

With draft tokens, for example, rows get unequal numbers of tokens. So each row has counters of its
own. `sim.engine.server_config.goes_row_by_row` says which servers these are, and why; all others
are in `sim.engine.parts` and `sim.core.batch`. Many equal steps are taken at once where a scheduler
can tell that each row gets one token in each of them (`BaseScheduler.num_row_steps`).

With speculative decoding a step verifies draft tokens. A row with k draft tokens computes 1 + k
tokens: its last known one and the drafts. If the target model accepts the first n drafts, the row
gets n + 1 tokens: those, and the one that the target model computed after them. KV of rejected
drafts is worthless, but its place stays allocated.
"""

from collections.abc import Iterable, Sequence

from sim.core.arrays import Int64
from sim.core.batch import (
    NEVER_STEPS,
    Batch,
    ForwardMode,
    ScriptedExecutor,
    ScriptedOutput,
    StepOutput,
)
from sim.core.errors import InvariantError
from sim.engine.acceptance import Speculation
from sim.engine.parts import MANY_STEPS, Results
from sim.engine.records import Launch, RequestRecord, prefill_rows
from sim.engine.request import NEVER_NS, Request, TokenClock
from sim.engine.running_batch import DecodeRun, PageDemand, R


class RowLaunch(Launch[R]):
    """A launch whose decode rows may compute several tokens each.

    Attributes:
        drafts: draft tokens of each decode row.
        contexts: context length of each decode row after the step.
        padding: of each prefill row: tokens that stand for drafts; they are always rejected.
        lengths: of each prefill row: the tokens it computes, with its padding.
    """

    def __init__(
        self,
        mode: ForwardMode,
        prefill: list[R],
        decode: list[R],
        chunked: tuple[R, ...],
        *,
        drafts: list[int],
        contexts: list[int],
        padding: list[int],
    ) -> None:
        super().__init__(mode, prefill, decode, chunked)
        self.drafts = drafts
        self.contexts = contexts
        self.padding = padding
        self.lengths = [request.extend_len for request in prefill]


class RowClock(TokenClock):
    """A token clock for servers whose requests do not all get a token in each step."""

    def join(self, request: Request, now_ns: int) -> None:
        self.single_token(request, now_ns)

    def resume(self, request: Request) -> None:
        """Nothing to do: the next gap is measured for this request alone."""

    def leave(self, request: Request) -> None:
        """Nothing to do."""

    def tick(self, now_ns: int, rows: Iterable[Request] = ()) -> None:
        """These decoding requests got a token; those of other steps in flight did not."""
        ticking = list(rows)
        self.tick_unevenly(ticking, [1] * len(ticking), now_ns)

    def tick_unevenly(
        self, rows: Iterable[Request], num_tokens: Iterable[int], now_ns: int
    ) -> None:
        """Each of these requests got its number of tokens at once: between them are gaps of 0."""
        gaps_ns = {0: 0}
        for request, number in zip(rows, num_tokens, strict=True):
            if request.last_token_ns != NEVER_NS:
                gap_ns = now_ns - request.last_token_ns
                gaps_ns[gap_ns] = gaps_ns.get(gap_ns, 0) + 1
            if number > 1:
                gaps_ns[0] += number - 1
            request.last_token_ns = now_ns
        for gap_ns, count in gaps_ns.items():
            if count:
                self._add(gap_ns, count, now_ns)

    def tick_rows(self, rows: Sequence[Request], ends_ns: Int64) -> None:
        """Each row got a token at each time; int64, shape [num_steps]."""
        one_each = [1] * len(rows)
        for end_ns in ends_ns.tolist():
            self.tick_unevenly(rows, one_each, end_ns)


class RowResults(Results):
    """The results of servers whose rows may get several tokens in a step, or none."""

    def __init__(self, *, has_drafts: bool) -> None:
        """`has_drafts`: steps verify draft tokens."""
        self._row_clock = RowClock()
        super().__init__(self._row_clock, in_lockstep=False)
        self._has_drafts = has_drafts

    def describe(self, launch: Launch[Request], stopped_rids: Sequence[str]) -> Batch:
        if not isinstance(launch, RowLaunch):
            raise InvariantError("a launch says nothing of its rows")
        contexts = launch.contexts
        num_decode_context = sum(contexts)
        num_prefill_context = sum([request.extend_end for request in launch.prefill])
        return Batch(
            launch.mode,
            prefill_rows(launch),
            tuple([request.rid for request in launch.decode]),
            num_prefill_context + num_decode_context,
            num_decode_context,
            tuple(stopped_rids),
            (),
            max(contexts, default=0),
            min(contexts, default=0),
            tuple(launch.drafts) if self._has_drafts else (),
        )

    def take(
        self,
        launch: Launch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        if not isinstance(launch, RowLaunch):
            raise InvariantError("a launch says nothing of its rows")
        finishing = self._take_prefill(launch, output, ended, now_ns, records)
        return finishing + self._take_decode(launch, output, ended, now_ns)

    def horizon(self, launch: Launch[Request]) -> int:
        if not self.scheduler.repeats_rows:
            return 0
        most = min([row.max_new_tokens - row.num_generated for row in launch.decode]) - 1
        return self.scheduler.num_row_steps(launch.decode, min(most, MANY_STEPS))

    def take_steps(self, launch: Launch[Request], ends_ns: Int64) -> DecodeRun:
        scheduler, rows, num_steps = self.scheduler, launch.decode, len(ends_ns)
        kv, ratio = scheduler.memory, scheduler.new_token_ratio
        num_free = kv.num_free_pages
        taken = PageDemand(scheduler.decode_rows_again(rows, num_steps), len(rows))
        self._row_clock.tick_rows(rows, ends_ns)
        return DecodeRun(num_steps, num_free, kv.page_size, taken, [ratio] * num_steps)

    def _take_prefill(
        self,
        launch: RowLaunch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        scheduler, role, finishing = self.scheduler, self.role, list[Request]()
        num_proposed = output.num_proposed[: len(launch.prefill)]
        for request, num_tokens, padding, proposed in zip(
            launch.prefill, launch.lengths, launch.padding, num_proposed, strict=True
        ):
            if scheduler.is_over(request, num_tokens):
                continue
            if request in launch.chunked:
                scheduler.chunk_done(request, num_tokens)
                role.chunk_computed(request)
                continue
            scheduler.prompt_done(
                request, num_tokens=num_tokens, num_drafts=padding, num_proposed=proposed
            )
            if role.keeps_prompts:
                role.prompt_computed(request, now_ns, records)
                continue
            self._row_clock.single_token(request, now_ns)
            if not (self._give(request, 1, now_ns) or request.rid in ended):
                scheduler.prefill_computed(request)
            elif scheduler.ends_in_batch_order:
                records.append(self.engine.finish(request, now_ns))
            else:
                finishing.append(request)
        return finishing

    def _take_decode(
        self, launch: RowLaunch[Request], output: StepOutput, ended: frozenset[str], now_ns: int
    ) -> list[Request]:
        finishing, rows, given = list[Request](), list[Request](), list[int]()
        num_proposed = output.num_proposed[len(launch.prefill) :]
        for request, num_drafts, num_sampled, proposed in zip(
            launch.decode, launch.drafts, output.num_sampled, num_proposed, strict=True
        ):
            if self.scheduler.is_over(request, 1 + num_drafts):
                continue
            num_kept = min(num_sampled, request.max_new_tokens - request.num_generated)
            if num_drafts:
                request.verify_steps += 1
                request.drafted_tokens += num_drafts
                request.accepted_tokens += num_kept - 1
            self.scheduler.verified(
                request,
                num_drafts=num_drafts,
                num_sampled=num_sampled,
                num_kept=num_kept,
                num_proposed=proposed,
            )
            rows.append(request)
            given.append(num_kept)
            if self._give(request, num_kept, now_ns) or request.rid in ended:
                finishing.append(request)
        self._row_clock.tick_unevenly(rows, given, now_ns)
        return finishing

    def _give(self, request: Request, num_kept: int, now_ns: int) -> bool:
        """Give a row its tokens; returns whether it is at its limit."""
        if request.first_token_ns == NEVER_NS:
            request.first_token_ns = now_ns
        request.num_generated += num_kept
        return request.num_generated >= request.max_new_tokens


class RowExecutor(ScriptedExecutor):
    """Generates the tokens of each request's script where each row's tokens are counted."""

    def __init__(
        self, speculation: Speculation | None, *, keeps_tokens_in_flight: bool = True
    ) -> None:
        """`keeps_tokens_in_flight`: see `BaseScheduler`."""
        super().__init__()
        self._speculation = speculation
        self._loses_tokens = not keeps_tokens_in_flight
        self._num_outputs: dict[str, int] = {}

    def execute(self, batch: Batch, num_steps: int = 1) -> StepOutput:
        """Run a batch; accepted drafts are among the tokens. Several steps: only without drafts."""
        outputs = self._outputs
        finished: list[str] = []
        for row in batch.prefill:
            if row.samples and row.rid in outputs:
                if self._loses_tokens:
                    self._num_outputs[row.rid] = row.num_prior_outputs
                if self._sample(row.rid, 1, outputs[row.rid]):
                    finished.append(row.rid)
        num_sampled: list[int] = []
        drafts = batch.drafts or [0] * len(batch.decode_rids)
        for rid, num_drafts in zip(batch.decode_rids, drafts, strict=True):
            output = outputs.get(rid)
            if output is None:
                num_sampled.append(0)  # it ended with the step before
                continue
            num_tokens = num_steps + self._num_accepted(rid, num_drafts, output.script.seed)
            if not output.is_endless:
                num_tokens = min(num_tokens, len(output) - self._num_outputs[rid])
            num_sampled.append(num_tokens)
            if self._sample(rid, num_tokens, output):
                finished.append(rid)
        rids = [*[row.rid for row in batch.prefill], *batch.decode_rids]
        num_proposed = [self._num_proposed(rid, outputs.get(rid)) for rid in rids]
        return StepOutput(tuple(finished), tuple(num_sampled), tuple(num_proposed))

    def join(
        self, rid: str, num_outputs: int, num_missed_steps: int, *, is_back: bool = False
    ) -> bool:
        self._num_outputs[rid] = 0
        return self._sample(rid, num_outputs, self._outputs[rid])

    def steps_to_finish(self) -> int:
        ends = [
            len(output) - self._num_outputs[rid]
            for rid, output in self._outputs.items()
            if not output.is_endless and rid in self._num_outputs
        ]
        return min(ends, default=NEVER_STEPS)

    def forget(self, rid: str) -> None:
        super().forget(rid)
        self._num_outputs.pop(rid, None)

    def _num_accepted(self, rid: str, num_drafts: int, seed: int) -> int:
        """How many of a row's draft tokens are accepted."""
        if not num_drafts or self._speculation is None:
            return 0
        acceptance, place = self._speculation.acceptance, self._num_outputs[rid]
        # SGLang verifies `num_drafts` tokens even if the lookup found fewer.
        num_found = acceptance.num_proposed(rid, seed, place, num_drafts)
        return acceptance.num_accepted(rid, seed, place, min(num_drafts, num_found))

    def _num_proposed(self, rid: str, output: ScriptedOutput | None) -> int:
        """How many tokens are drafted after the output so far; none before its first token."""
        speculation, place = self._speculation, self._num_outputs.get(rid, 0)
        if speculation is None or output is None or not place:
            return 0
        seed = output.script.seed
        return speculation.acceptance.num_proposed(rid, seed, place, speculation.num_tokens)

    def _sample(self, rid: str, num_tokens: int, output: ScriptedOutput) -> bool:
        """Generate tokens; returns whether the last one is an end token."""
        num_outputs = self._num_outputs.get(rid, 0) + num_tokens
        self._num_outputs[rid] = num_outputs
        return not output.is_endless and num_outputs >= len(output)
