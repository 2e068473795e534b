"""Servers whose decode rows do not all get one token in each step.

With draft tokens, for example, rows get unequal numbers of tokens. So each row has counters of its
own. `sim.engine.server_config.goes_row_by_row` says which servers these are, and why; all others
are in `sim.engine.parts` and `sim.core.batch`; their executor is in `sim.engine.row_executor`. Many
equal steps are taken at once where a scheduler can tell that each row gets one token in each of
them (`BaseScheduler.num_row_steps`), or where it is known what each row gets
(`BaseScheduler.draft_steps`).

With speculative decoding a step verifies draft tokens. A row with k draft tokens computes 1 + k
tokens: its last known one and the drafts. If the target model accepts the first n drafts, the row
gets n + 1 tokens: those, and the one that the target model computed after them. KV of rejected
drafts is worthless, but its place stays allocated.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import Batch, ForwardMode, Rids, StepOutput
from sim.core.errors import InvariantError
from sim.engine.decode_run import DecodeRun, DraftRun, PageDemand
from sim.engine.parts import MANY_STEPS, Results
from sim.engine.records import Launch, RequestRecord, prefill_rows
from sim.engine.request import NEVER_NS, Request, TokenClock
from sim.engine.running_batch import R

# `RowExecutor.outputs_ahead`.
OutputsAhead = Callable[[Rids, Sequence[int], int], Int64 | None]
# Steps with drafts that are looked at: twice as many after all of them were taken, up to the most.
_FEWEST_AHEAD, _MOST_AHEAD = 8, 512


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
        # Most rows have got their last tokens together: of these, one look-up is enough.
        last_ns, num_alike, num_accepted = NEVER_NS, 0, 0
        for request, number in zip(rows, num_tokens, strict=True):
            if request.last_token_ns != last_ns:
                if last_ns != NEVER_NS:
                    gaps_ns[now_ns - last_ns] = gaps_ns.get(now_ns - last_ns, 0) + num_alike
                last_ns, num_alike = request.last_token_ns, 0
            num_alike += 1
            if number > 1:
                num_accepted += number - 1
            request.last_token_ns = now_ns
        if last_ns != NEVER_NS:
            gaps_ns[now_ns - last_ns] = gaps_ns.get(now_ns - last_ns, 0) + num_alike
        gaps_ns[0] += num_accepted
        for gap_ns, count in gaps_ns.items():
            if count:
                self._add(gap_ns, count, now_ns)

    def tick_together(self, num_rows: int, num_accepted: Int64, ends_ns: Int64) -> None:
        """Rows that got tokens at the first of these times got more at each of the others.

        In step i they had `num_accepted[i]` accepted drafts together, and a token each after them.
        Both arrays have shape [num_steps]; of the first step only the time counts.
        """
        gaps_ns = np.zeros((len(ends_ns) - 1, 2), dtype=np.int64)
        counts = np.full_like(gaps_ns, num_rows)
        gaps_ns[:, 1] = ends_ns[1:] - ends_ns[:-1]
        counts[:, 0] = num_accepted[1:]
        occurs = counts > 0
        self._gap_ns.extend(gaps_ns[occurs].tolist())
        self._count.extend(counts[occurs].tolist())
        if self.keeps_times:
            at_ns = np.repeat(ends_ns[1:], 2).reshape(-1, 2)
            self._at_ns.extend(at_ns[occurs].tolist())

    def tick_rows(self, rows: Sequence[Request], ends_ns: Int64) -> None:
        """Each row got a token at each time; int64, shape [num_steps]."""
        one_each = [1] * len(rows)
        for end_ns in ends_ns.tolist():
            self.tick_unevenly(rows, one_each, end_ns)


class RowResults(Results):
    """The results of servers whose rows may get several tokens in a step, or none."""

    def __init__(self, *, has_drafts: bool, outputs_ahead: OutputsAhead | None = None) -> None:
        """`has_drafts`: steps verify draft tokens.

        `outputs_ahead` says how many tokens rows will get; None: nobody knows before.
        """
        self._row_clock = RowClock()
        super().__init__(self._row_clock, in_lockstep=False)
        self._has_drafts = has_drafts
        self._outputs_ahead = outputs_ahead
        self._num_ahead = _FEWEST_AHEAD

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
        if self.scheduler.repeats_drafts:
            run = self.draft_run = self._next_drafts(launch)
            return 0 if run is None else run.num_steps
        if not self.scheduler.repeats_rows:
            return 0
        most = min([row.max_new_tokens - row.num_generated for row in launch.decode]) - 1
        return self.scheduler.num_row_steps(launch.decode, min(most, MANY_STEPS))

    def _next_drafts(self, launch: Launch[Request]) -> DraftRun | None:
        """The steps after this one that verify drafts of the same rows, as far as is known."""
        scheduler, rows, ahead = self.scheduler, launch.decode, self._outputs_ahead
        if ahead is None or not self.engine.foresees_drafts:
            return None
        is_same = rows is scheduler.running.requests and not scheduler.has_finished_rows
        if not (is_same and scheduler.repeats):
            return None
        num_left = [row.max_new_tokens - row.num_generated for row in rows]
        outputs = ahead(scheduler.running.rids, num_left, self._num_ahead)
        run = None if outputs is None else scheduler.draft_run(rows, outputs)
        return run if run is not None and run.num_steps else None

    def take_steps(self, launch: Launch[Request], ends_ns: Int64) -> DecodeRun:
        if self.draft_run is not None and isinstance(launch, RowLaunch):
            return self._take_drafts(launch, self.draft_run.first(len(ends_ns)), ends_ns)
        scheduler, rows, num_steps = self.scheduler, launch.decode, len(ends_ns)
        kv, ratio = scheduler.memory, scheduler.new_token_ratio
        num_free = kv.num_free_pages
        taken = PageDemand(scheduler.decode_rows_again(rows, num_steps), len(rows))
        self._row_clock.tick_rows(rows, ends_ns)
        return DecodeRun(num_steps, num_free, kv.page_size, taken, [ratio] * num_steps)

    def _take_drafts(self, launch: RowLaunch[Request], run: DraftRun, ends_ns: Int64) -> DecodeRun:
        scheduler, kv, rows = self.scheduler, self.scheduler.memory, launch.decode
        num_steps, num_rows, num_free = run.num_steps, len(rows), kv.num_free_pages
        ratios = scheduler.decode_again(num_steps)
        evicted = scheduler.drafts_again(rows, run)
        scheduler.decoded_again(num_steps)
        gained = np.diff(run.outputs, axis=1)
        of_first, num_accepted = gained[:, 0].tolist(), gained.sum(axis=0) - num_rows
        first_ns, last_ns = int(ends_ns[0]), int(ends_ns[-1])
        self._row_clock.tick_unevenly(rows, of_first, first_ns)
        self._row_clock.tick_together(num_rows, num_accepted, ends_ns)
        of_all = (run.outputs[:, -1] - run.outputs[:, 0]).tolist()
        for request, num_drafts, num_tokens in zip(rows, launch.drafts, of_all, strict=True):
            request.verify_steps += num_steps
            request.drafted_tokens += num_steps * num_drafts
            request.accepted_tokens += num_tokens - num_steps
            request.last_token_ns = last_ns
            self._give(request, num_tokens, first_ns)
        self._num_ahead = min(max(2 * num_steps, _FEWEST_AHEAD), _MOST_AHEAD)
        demand = PageDemand(run.new_pages.tolist(), num_rows)
        return DecodeRun(num_steps, num_free, kv.page_size, demand, ratios, run.contexts, evicted)

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
