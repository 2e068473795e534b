"""The parts that an engine is made of: its role, and how it takes in the results of a step.

*Results*: on most servers each decode row gets one token in each step (`LockstepResults`). Their
rows move in lockstep: counters of the whole batch tell how long each row is
(`sim.engine.running_batch`), and many equal steps are taken at once (`sim.engine.core`). Other
servers go row by row (`sim.engine.rows`).

*Role*: what a server does for requests that it shares with servers of another role. A request's
prompt is computed on a prefill server and its answer on a decode server. The driver carries
messages and KV between the two, and takes time for it:

    prefill server        driver                  decode server
                    <- partner_allocated <-       allocated        KV for the prompt is allocated
    computed        ->  transfer of a chunk       (where it is announced before the prefill)
    computed (last) ->  transfer of the rest
    sent            <-  it has left
                        it has arrived ->         received         the request decodes

What the driver tells a role is noted at once. The role acts on it where a real server polls. SGLang
pushes KV to the decode server (`sim.sglang.scheduler.roles.pushing`); vLLM's decode server pulls it
(`sim.vllm.pulling`).
"""

from collections.abc import Iterator, Sequence

from mypy_extensions import mypyc_attr

from sim.core.arrays import Int64
from sim.core.batch import Batch, ForwardMode, StepOutput
from sim.core.request import Status
from sim.engine.decode_run import DecodeRun, DraftRun
from sim.engine.live_requests import LiveRequests
from sim.engine.records import Decided, Launch, RequestRecord, batch_of
from sim.engine.request import NEVER_NS, Request, TokenClock
from sim.engine.scheduler import BaseScheduler
from sim.engine.server_config import Partner

# Limits the size of a run's arrays; a longer run is split.
MANY_STEPS = 4096


@mypyc_attr(allow_interpreted_subclasses=True)
class Role:
    """Base class, and the role of a server that computes whole requests: nothing is to be done.

    Attributes:
        keeps_prompts: a request whose prompt is computed is the role's (`prompt_computed`); it does
            not decode here.
        sending: requests whose prompts are computed and whose KV has not left yet, by rid.
        polls_at_steps: a rank that waits for something decides once in each step of its group, also
            in steps without work.
        waits_without_step: a decision that launches nothing holds the server's loop up, too, for as
            long as it waits for copies.
        now_ns: the time of what the driver tells (`sent` and those after it).
    """

    keeps_prompts: bool
    polls_at_steps: bool
    waits_without_step: bool
    now_ns: int

    def __init__(self) -> None:
        self.keeps_prompts = self.polls_at_steps = self.waits_without_step = False
        self.now_ns = 0
        self.sending: dict[str, Request] = {}

    def attach(self, engine: LiveRequests, scheduler: BaseScheduler[Request]) -> None:
        """Called once, when the engine is made."""
        self.engine = engine
        self.scheduler = scheduler

    @property
    def partner(self) -> Partner:
        """Hears of requests that this server shares."""
        return self.scheduler.partner

    @partner.setter
    def partner(self, partner: Partner) -> None:
        self.scheduler.partner = partner

    # ---- what the driver tells -----------------------------------------------------------------

    def partner_allocated(self, rid: str, num_cached_tokens: int) -> None:
        """Of a prefill server: the decode server has allocated a request's KV.

        It lacks all but the first `num_cached_tokens` tokens.
        """

    def dismiss(self, rid: str) -> None:
        """Of a prefill server: the decode server has ended a request early, and wants no KV."""
        self.engine.give_up(rid)

    def sent(self, rid: str) -> None:
        """Of a prefill server: a request's KV has left it."""

    def received(self, rid: str) -> None:
        """Of a decode server: a request's KV has arrived."""

    def transfer_failed(self, rid: str) -> None:
        """The KV of a request is lost on its way: the request is given up."""

    # ---- the moments of a step, in order -------------------------------------------------------

    def begin_step(self, now_ns: int) -> Decided:
        """A driver asks for the next step: make one pass of the server's loop, or several."""
        return self.engine.decide(now_ns)

    def before_decision(self, now_ns: int, over: list[RequestRecord]) -> None:
        """In a pass, arrivals are received. `over` gets records of requests that end here."""

    def launched(self, launch: Launch[Request], at_ns: int) -> None:
        """In a pass, a step was decided; it is the newest in flight.

        It is launched at `at_ns`, for which the scheduler may wait for copies.
        """

    def step_ends(self, end_ns: int) -> None:
        """The step that was just begun will end then on all devices.

        A rank without work hears of it, too, as it runs along.
        """

    def begin_result(self, output: StepOutput, now_ns: int) -> None:
        """The result of the oldest step in flight is taken in next: `output`."""

    def chunk_computed(self, request: Request) -> None:
        """A part of a prompt is computed, and more of it is to come."""

    def prompt_computed(self, request: Request, now_ns: int, records: list[RequestRecord]) -> None:
        """With `keeps_prompts`: the prompt of a request is computed.

        `records` gets the record of the request if it ends here.
        """
        raise NotImplementedError

    def result_taken(self, now_ns: int, records: list[RequestRecord]) -> None:
        """The result is taken in. `records` has all requests that ended with it, and gets more."""

    def nothing_came(self, now_ns: int) -> None:
        """In a pipeline: the turn of a decision that launched nothing has come."""

    # ---- questions -----------------------------------------------------------------------------

    def num_launchable(self, num_waiting: int) -> int:
        """Of `num_waiting` requests that wait or are between chunks: how many may be launched."""
        return num_waiting

    @property
    def has_news(self) -> bool:
        """The driver has told something that a coming decision acts on: it is no repetition."""
        return False

    @property
    def decides_again(self) -> bool:
        """A rank that has launched nothing decides again at once."""
        return False

    @property
    def unseen(self) -> frozenset[str]:
        """Requests whose transfers have ended, which the server has not looked for yet."""
        return frozenset()

    @property
    def wakes_ns(self) -> int | None:
        """When something will happen on a server even if it launches nothing; None: never."""
        return None

    def goes_on_without_client(self, rid: str) -> bool:
        """Whether a request is served as before although its client has given it up."""
        return False

    def aborts(self, request: Request) -> bool:
        """A request ends early; returns whether the role sees to it."""
        return False


class Results:
    """How the results of steps are taken in: the base class.

    Attributes:
        clock: inter-token latencies so far.
        in_lockstep: each decode row gets one token in each step.
        draft_run: the steps that `horizon` has counted last, if they verify drafts.
    """

    def __init__(self, clock: TokenClock, *, in_lockstep: bool) -> None:
        self.clock = clock
        self.in_lockstep = in_lockstep
        self.draft_run: DraftRun | None = None

    def attach(self, engine: LiveRequests, scheduler: BaseScheduler[Request], role: Role) -> None:
        """Called once, when the engine is made."""
        self.engine = engine
        self.scheduler = scheduler
        self.role = role

    def describe(self, launch: Launch[Request], stopped_rids: Sequence[str]) -> Batch:
        """The batch of a launch that was just decided.

        `stopped_rids` are the requests that were taken out of the running batch since the last one.
        """
        raise NotImplementedError

    def take(
        self,
        launch: Launch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        """Give the rows of a launch their tokens; returns requests that are still to be finished.

        `ended` are the requests that end with this result: by an end token, or although their
        answers go on (`LiveRequests.ending`).
        `records` gets those of requests that end here at once.
        """
        raise NotImplementedError

    def horizon(self, launch: Launch[Request]) -> int:
        """How many steps after this decode step, the only one in flight, must have the same rows.

        None of these may reach its limit, or need pages that are not free.
        """
        raise NotImplementedError

    def take_steps(self, launch: Launch[Request], ends_ns: Int64) -> DecodeRun:
        """Begin as many steps, at most `horizon`, and finish those before the last; see there.

        `ends_ns`: when each result is known, that of `launch` first; shape [num_steps].
        """
        raise NotImplementedError


class LockstepResults(Results):
    """The results of servers on which each decode row gets one token in each step."""

    def __init__(self, clock: TokenClock) -> None:
        super().__init__(clock, in_lockstep=True)

    def describe(self, launch: Launch[Request], stopped_rids: Sequence[str]) -> Batch:
        scheduler = self.scheduler
        return batch_of(launch, scheduler.running, scheduler.resting, stopped_rids)

    def take(
        self,
        launch: Launch[Request],
        output: StepOutput,
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        decodes = launch.mode is not ForwardMode.EXTEND
        if launch.resting or launch.resumed:
            self._take_turns(launch)
        if decodes:
            running = self.scheduler.running
            running.finish_steps()
            self.clock.tick(now_ns, running.requests)
        finishing = self._take_prefill(launch, ended, now_ns, records)
        if decodes:
            finishing.extend(self._finishing_decode_rows(launch, ended, finishing))
        if launch.put_back:
            finishing.extend(self._finishing_put_back(launch, ended, now_ns))
        return finishing

    def horizon(self, launch: Launch[Request]) -> int:
        scheduler = self.scheduler
        running = scheduler.running
        is_same = launch.decode is running.requests and not scheduler.has_finished_rows
        if not (is_same and scheduler.repeats):
            return 0
        num_steps = min(running.num_steps_to_limit - 1, MANY_STEPS)
        if num_steps <= 0:
            return 0
        return scheduler.memory.num_affordable_steps(num_steps, running.page_demand())

    def take_steps(self, launch: Launch[Request], ends_ns: Int64) -> DecodeRun:
        scheduler, num_steps = self.scheduler, len(ends_ns)
        running, kv = scheduler.running, scheduler.memory
        self._take_turns(launch)
        ratio = scheduler.decode_again(num_steps)
        demand = running.page_demand()
        run = DecodeRun(num_steps, kv.num_free_pages, kv.page_size, demand, ratio)
        kv.reserve_pages(run.num_pages)
        running.begin_steps(num_steps)
        running.finish_steps(num_steps)
        scheduler.decoded_again(num_steps)
        self.clock.tick_many(ends_ns)
        return run

    def _take_turns(self, launch: Launch[Request]) -> None:
        """Stop the token clock of rows that rest in this launch; restart it for resumed rows."""
        for request in launch.resting:
            self.clock.leave(request)
        for request in launch.resumed:
            if request.in_running_batch or request in launch.leaving:
                self.clock.resume(request)
        launch.resting = launch.resumed = ()

    def _take_prefill(
        self,
        launch: Launch[Request],
        ended: frozenset[str],
        now_ns: int,
        records: list[RequestRecord],
    ) -> list[Request]:
        """Give the prefill rows their tokens; returns rows that are still to be finished."""
        finishing: list[Request] = []
        in_order = self.scheduler.ends_in_batch_order
        decodes = launch.mode is not ForwardMode.EXTEND
        role = self.role
        for request in launch.prefill:
            if request.status is not Status.RUNNING:
                continue
            if request in launch.chunked:
                role.chunk_computed(request)
                continue
            if role.keeps_prompts:
                role.prompt_computed(request, now_ns, records)
                continue
            self._add_first_token(request, now_ns, already_counted=decodes)
            if request.rid not in ended and request.num_generated < request.max_new_tokens:
                self.scheduler.prefill_computed(request)
                request.chunk_computed()
            elif in_order:
                records.append(self.engine.finish(request, now_ns))
            else:
                finishing.append(request)
        return finishing

    def _add_first_token(self, request: Request, now_ns: int, *, already_counted: bool) -> None:
        """Count the token of a prefill: the first, or the next one after a retraction."""
        if not request.in_running_batch:
            request.num_generated += 1
        elif not already_counted:
            self.scheduler.running.add_first_token(request)
        if request.first_token_ns == NEVER_NS:
            request.first_token_ns = now_ns
        self.clock.join(request, now_ns)

    def _finishing_decode_rows(
        self, launch: Launch[Request], ended: frozenset[str], finishing: list[Request]
    ) -> list[Request]:
        """Decode rows that finish with this result, in batch order.

        Under overlap, the next decision may already have put a row that this launch prefilled into
        the running batch. If that row finishes, it has ended or is in `finishing`, and is not
        returned again.
        """
        due = self._running_rows_at_end(ended)
        if launch.leaving:
            due = [*launch.leaving, *due]
        if not due:
            return []
        rows = {r: None for r in due if r.status is Status.RUNNING and r not in finishing}
        for request in launch.leaving:
            if request in rows:
                request.num_generated += 1
        if len(rows) <= 1:
            return list(rows)
        return [request for request in launch.decode if request in rows]

    def _finishing_put_back(
        self, launch: Launch[Request], ended: frozenset[str], now_ns: int
    ) -> Iterator[Request]:
        """Give each row that was put back after the launch its token; yields the finished ones."""
        for request in launch.put_back:
            if request.status is Status.ABORTED:
                continue
            request.num_generated += 1
            self.clock.single_token(request, now_ns)
            if request.first_token_ns == NEVER_NS:
                request.first_token_ns = now_ns
            if request.rid in ended or request.num_generated >= request.max_new_tokens:
                yield request

    def _running_rows_at_end(self, ended: frozenset[str]) -> list[Request]:
        """Running rows that are at their token limit, or that generated an end token."""
        rows = self.scheduler.running.rows_at_limit()
        if not (rows or ended):
            return rows
        for rid in ended:
            row = self.engine.requests.get(rid)
            if row is not None:
                rows.append(row)
        return [row for row in rows if row.status is Status.RUNNING]
