"""The scheduler of an installed engine: it decides in a process of its own, see `process`.

Here are the books: which request waits or runs, and how many tokens it has. The engine's scheduler
keeps its own, and has the queues, the blocks and the prefix cache. Each step is two questions: what
to compute next, and, when its tokens are known, who has got them and who has ended.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sim.core.batch import ForwardMode, StepOutput
from sim.core.errors import require
from sim.core.request import RequestSpec, Status
from sim.engine.parts import Role
from sim.engine.records import Decision, Launch, RequestRecord
from sim.engine.request import OutputTokens, Request
from sim.engine.rows import RowLaunch
from sim.engine.running_batch import KVMemory
from sim.engine.scheduler import BaseScheduler
from sim.installed.process import EngineServer

# Requests may preempt each other for ever: the run ends after this number of decisions that preempt
# some, if no request has got a token since.
_MOST_PREEMPTING = 3_000
# An idle server is stuck after this number of passes that launch nothing: the first if the engine
# says that the next pass may differ from the last, else the second.
_MOST_PASSES, _MOST_SETTLED_PASSES = 3_000, 3

Answer = dict[str, Any]


class EngineMemory(KVMemory):
    """The engine's KV pool, of which only numbers are known.

    Attributes:
        told: free tokens and evictable tokens, as the engine said last.
    """

    def __init__(self, page_size: int, num_pages: int) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self.told = num_pages * page_size, 0

    @property
    def num_free_pages(self) -> int:
        return self.told[0] // self.page_size

    @property
    def evictable_tokens(self) -> int:
        return self.told[1]


class EngineRequest(Request):
    """A request, for the books.

    Attributes:
        outputs: its output tokens.
        decodes: a step has computed its prompt, or after it was put back all that it lost.
    """

    def __init__(self, like: Request, outputs: OutputTokens) -> None:
        """`like`: what the family makes of the request."""
        super().__init__(like.spec, limit=like.max_new_tokens, priority=like.priority)
        self.prompt_len = like.prompt_len
        self.end_status = like.end_status
        self.outputs = outputs
        self.decodes = False

    def next_tokens(self, num_tokens: int) -> list[int]:
        """The output tokens that follow those which are known."""
        place = self.num_generated
        ids: list[int] = self.outputs.part(place, place + num_tokens)[0:num_tokens].tolist()
        return ids

    def described(self) -> dict[str, object]:
        """What the engine is told of it."""
        spec = self.spec
        return {
            "rid": spec.rid,
            "prompt": spec.prompt.token_ids(0, len(spec.prompt)).tolist(),
            "max_tokens": spec.max_new_tokens,
            "ignore_eos": spec.ignore_eos,
            "priority": spec.priority,
            "routing_key": spec.session or None,
            "arrival_ns": spec.arrival_ns,
        }


class EngineScheduler(BaseScheduler[EngineRequest]):
    """Asks an engine's scheduler, and keeps the books."""

    def __init__(self, server: EngineServer, like: BaseScheduler[Any], *, keeps: bool) -> None:
        """Keep the books of `server`.

        Args:
            server: the engine's scheduler.
            like: the family's own scheduler, whose front end takes in requests and limits them.
            keeps: a request that is put back into the queue keeps its token in flight.
        """
        self._pages = EngineMemory(like.memory.page_size, like.memory.num_pages)
        super().__init__(self._pages)
        self.family = like.family
        self.goes_row_by_row = True
        self.keeps_tokens_in_flight = keeps
        self.aborts_before_results = like.aborts_before_results
        self.ends_in_batch_order = like.ends_in_batch_order
        self.fills_places = like.fills_places
        self.front_end_limits = like.front_end_limits
        self.has_limits = like.has_limits
        self._like = like
        self._server = server
        self._now_ns = 0
        self._waiting: dict[str, EngineRequest] = {}
        # In order of admission.
        self._admitted: dict[str, EngineRequest] = {}
        self._told: Answer = {"running": 0, "full": False, "ratio": 0.0, "chunked": None}
        self._num_passes = self._num_preempting = 0
        # Of the result that is taken in: who has got a token, and who has ended, in order.
        self._given: frozenset[str] = frozenset()
        self._ended: list[str] = []

    def _ask(self, method: str, *arguments: object) -> Answer:
        answer = self._server.ask(method, self._now_ns, *arguments)
        if "free_tokens" in answer:
            self._pages.told = answer["free_tokens"], answer["evictable_tokens"]
            self._told = answer
        return answer

    # ---- requests ------------------------------------------------------------------------------

    def token_limit(self, prompt_len: int, max_new_tokens: int) -> int:
        return self._like.token_limit(prompt_len, max_new_tokens)

    def takes(self, prompt_len: int, max_new_tokens: int) -> bool:
        return self._like.takes(prompt_len, max_new_tokens)

    def new_request(self, spec: RequestSpec, limit: int, outputs: OutputTokens) -> EngineRequest:
        return EngineRequest(self._like.new_request(spec, limit, outputs), outputs)

    def look_for_late(self, now_ns: int) -> Sequence[EngineRequest]:
        self._now_ns = now_ns
        if not self.has_limits:
            return ()
        return [self._request(rid) for rid in self._ask("late")["late"]]

    def enter(self, request: EngineRequest) -> None:
        self._waiting[request.rid] = request
        aborted = self._ask("add", [request.described()])["aborted"]
        self.dropped += [self._drop(rid) for rid in aborted]

    def abort(self, request: EngineRequest, in_flight: Sequence[Launch[EngineRequest]]) -> bool:
        if request.rid not in self._ask("abort", request.rid)["aborted"]:
            return False
        self._drop(request.rid)
        return True

    def withdraw(self, request: EngineRequest) -> None:
        self._drop(request.rid)

    def give_back(self, request: EngineRequest) -> None:
        self._drop(request.rid)

    def _drop(self, rid: str) -> EngineRequest:
        """A request has ended."""
        request = self._waiting.pop(rid, None)
        if request is None:
            request = self._admitted.pop(rid)
            self.free_slot(request)
        return request

    def in_order_of_end(self, finishing: list[EngineRequest]) -> list[EngineRequest]:
        """In the order in which the engine ends them, and frees their pages."""
        place = {rid: number for number, rid in enumerate(self._ended)}
        return sorted(finishing, key=lambda request: place.get(request.rid, 0))

    # ---- the step ------------------------------------------------------------------------------

    def decide(
        self, now_ns: int, in_flight: Launch[EngineRequest] | None
    ) -> Decision[EngineRequest]:
        self._now_ns = now_ns
        answer = self._ask("decide")
        decision: Decision[EngineRequest] = Decision()
        for rid in answer["retracted"]:
            decision.retracted.append(self._put_back(rid))
            decision.retracted[-1].retractions += 1
        for by, rid in answer["preempted"]:
            decision.preempted.append((self._request(by), [self._put_back(rid)]))
            self._waiting[rid].preemptions += 1
        for rid in answer["aborted"]:
            decision.aborted.append(self._drop(rid))
            decision.aborted[-1].status = Status.ABORTED
        decision.launch = self._launch(answer["rows"])
        self._num_preempting += bool(decision.preempted)
        if self._num_preempting > _MOST_PREEMPTING:
            raise self._server.error("requests preempt each other for ever, and none gets a token")
        return decision

    def _request(self, rid: str) -> EngineRequest:
        request = self._admitted.get(rid)
        return self._waiting[rid] if request is None else request

    def _put_back(self, rid: str) -> EngineRequest:
        """Note that a running request is in the queue again."""
        victim = self._waiting[rid] = self._admitted.pop(rid)
        self.free_slot(victim)
        victim.status = Status.WAITING
        victim.lose_prefix()
        victim.decodes = False
        return victim

    def _admit(self, rid: str) -> EngineRequest:
        request = self._admitted[rid] = self._waiting.pop(rid)
        request.status = Status.RUNNING
        self.num_slots_used += 1
        return request

    def _launch(self, rows: list[list[Any]]) -> RowLaunch[EngineRequest] | None:
        prefill: list[EngineRequest] = []
        decode: list[EngineRequest] = []
        chunked: list[EngineRequest] = []
        drafts: list[int] = []
        padding: list[int] = []
        for rid, num_computed, num_new, samples, num_drafts in rows:
            request = self._admitted.get(rid) or self._admit(rid)
            request.seq_len = num_computed + num_new
            if request.decodes:
                if num_new != 1 + num_drafts:
                    raise self._server.error(
                        f"{num_new} tokens and {num_drafts} drafts for {rid}, which decodes"
                    )
                decode.append(request)
                drafts.append(num_drafts)
                continue
            request.found(num_computed)
            request.take_chunk(num_computed + num_new)
            request.decodes = samples
            prefill.append(request)
            padding.append(num_drafts)
            if not samples:
                chunked.append(request)
        if not rows:
            return None
        self._num_passes = 0
        mode = ForwardMode.MIXED if decode else ForwardMode.EXTEND
        launch = RowLaunch(
            mode if prefill else ForwardMode.DECODE,
            prefill,
            decode,
            tuple(chunked),
            drafts=drafts,
            contexts=[request.seq_len for request in decode],
            padding=padding,
        )
        launch.num_new_tokens = sum(row[2] for row in rows) if prefill else 0
        return launch

    def idle(self, now_ns: int, decision: Decision[EngineRequest]) -> int | None:
        """Several passes may launch nothing before one that does."""
        if not (self._waiting or self._admitted):
            return None
        self._num_passes += 1
        if self._num_passes > (_MOST_PASSES if self._told["again"] else _MOST_SETTLED_PASSES):
            raise self._server.error(
                f"{len(self._waiting)} requests wait and {len(self._admitted)} run, but none gets"
                " a token"
            )
        return now_ns

    # ---- results -------------------------------------------------------------------------------

    def take_result(self, launch: Launch[EngineRequest], output: StepOutput, now_ns: int) -> None:
        """Tell the engine what the oldest step has sampled, and how many drafts follow."""
        self._now_ns = now_ns
        rows = [*launch.prefill, *launch.decode]
        num_sampled = [1] * len(launch.prefill) + list(output.num_sampled)
        sampled = {
            request.rid: request.next_tokens(num_tokens)
            for request, num_tokens in zip(rows, num_sampled, strict=True)
            if request not in launch.chunked
            and (request.rid in self._admitted or request.rid in self._waiting)
        }
        drafts = dict(zip([request.rid for request in rows], output.num_proposed, strict=True))
        answer = self._ask("result", sampled, drafts)
        self._given, self._ended = frozenset(answer["given"]), answer["ended"]
        if self._given:
            self._num_preempting = 0
        lost = [rid for rid in sampled if rid not in self._given]
        if lost and (self.keeps_tokens_in_flight or lost[0] in self._admitted):
            raise self._server.error(f"{lost[0]} loses a token in flight, which is not simulated")

    def is_over(self, request: EngineRequest, num_tokens: int) -> bool:
        return request.rid not in self._given

    def verified(
        self,
        request: EngineRequest,
        *,
        num_drafts: int,
        num_sampled: int,
        num_kept: int,
        num_proposed: int,
    ) -> None:
        """The engine has taken the tokens already."""

    def check_ends(self, records: Sequence[RequestRecord]) -> None:
        """Verify that the engine has ended the same requests as the simulator."""
        ours = {record.spec.rid: record.status is Status.FINISHED for record in records}
        odd = [rid for rid in self._ended if rid not in ours]
        if odd:
            raise self._server.error(f"it ends {odd[0]}, against the request's own limits")
        odd = [rid for rid, finished in ours.items() if finished and rid not in self._ended]
        if odd:
            raise self._server.error(f"it does not end {odd[0]}, against the request's own limits")

    def check(self) -> None:
        """Verify that as many requests wait in the engine as in the books.

        Raises:
            InvariantError: it is not so.
        """
        ours, theirs = len(self._waiting), self._told.get("waiting", 0)
        require(ours == theirs, f"{ours} requests wait, but in the engine {theirs}")

    # ---- state, for the engine and logs --------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def waiting_requests(self) -> Iterable[EngineRequest]:
        return self._waiting.values()

    def requests_elsewhere(self) -> Iterable[EngineRequest]:
        return self._admitted.values()

    @property
    def num_running(self) -> int:
        num_running: int = self._told["running"]
        return num_running

    @property
    def batch_is_full(self) -> bool:
        return bool(self._told["full"])

    @property
    def new_token_ratio(self) -> float:
        return float(self._told["ratio"])

    @property
    def chunked_rid(self) -> str | None:
        rid: str | None = self._told["chunked"]
        return rid


class EngineRole(Role):
    """Tells the engine of each result before it is taken in here."""

    def __init__(self, scheduler: EngineScheduler) -> None:
        super().__init__()
        self.keeps_prompts = False
        self._asked = scheduler

    def begin_result(self, output: StepOutput, now_ns: int) -> None:
        launch: Any = self.engine.in_flight[0]
        self._asked.take_result(launch, output, now_ns)

    def result_taken(self, now_ns: int, records: list[RequestRecord]) -> None:
        self._asked.check_ends(records)
