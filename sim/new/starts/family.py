"""A scheduler family with fixed slots: prompts are never split, and no prefix is cached."""

from collections import deque
from dataclasses import asdict, dataclass

from pydantic import Field

from sim.core.batch import ForwardMode
from sim.core.request import Status
from sim.engine.records import Decision, Launch, leave_out_finishing
from sim.engine.request import Request, RequestTokens
from sim.engine.running_batch import KVMemory
from sim.engine.scheduler import BaseScheduler
from sim.family import Family
from sim.family.section import ServerSection


@dataclass(frozen=True)
class SlotsConfig:
    """The settings of one server."""

    pool_tokens: int
    page_size: int
    max_rows: int
    overlaps: bool
    family: str = "slots"
    host_cache_tokens: int | None = None
    micro_batches: int = 1

    as_dict = asdict


class SlotsSection(ServerSection):
    """The keys of the section `scheduler`."""

    family: str
    page_size: int = Field(default=16, ge=1, le=4096)
    max_total_tokens: int = Field(ge=1, le=2**40)
    max_running_requests: int = Field(default=8, ge=1, le=10**6)
    disable_overlap_schedule: bool = False

    @property
    def max_rows(self):
        return self.max_running_requests

    @property
    def max_step_tokens(self):
        return self.max_total_tokens

    @property
    def pool_tokens(self):
        return self.max_total_tokens

    @property
    def pool_key(self):
        return "max_total_tokens"

    def config(self, pool_tokens):
        whole_pages = pool_tokens // self.page_size * self.page_size
        overlaps = not self.disable_overlap_schedule
        return SlotsConfig(whole_pages, self.page_size, self.max_rows, overlaps, self.family)


class SlotsMemory(KVMemory):
    """Pages for KV, with nothing to evict."""

    evictable_tokens = 0
    num_free_pages = property(lambda self: self.pool.num_free_pages)

    def __init__(self, pool):
        self.pool, self.page_size, self.num_pages = pool, pool.page_size, pool.num_pages
        self.reserve_pages = pool.reserve


class SlotsRequest(Request):
    """A request with its tokens and pages."""

    __slots__ = ("pages", "tokens")


class SlotsScheduler(BaseScheduler[SlotsRequest]):
    """Admits a request when a slot and room for all its tokens are free."""

    def __init__(self, config, memory):
        super().__init__(memory)
        self.family = config.family
        self._config, self._waiting, self._joining, self._num_reserved = config, deque(), [], 0

    def token_limit(self, prompt_len, max_new_tokens):
        return min(max_new_tokens, self.memory.pool_tokens - prompt_len)

    def new_request(self, spec, limit, outputs):
        request = SlotsRequest(spec, limit=limit)
        request.pages = self.memory.pool.empty
        request.tokens = RequestTokens(spec.prompt, outputs)
        return request

    def enter(self, request):
        self._waiting.append(request)

    def waiting_requests(self):
        return self._waiting

    def requests_elsewhere(self):
        return self._joining

    def decide(self, now_ns, in_flight):
        decision = Decision()
        self.running.remove([r for r in self.running.requests if r.status is not Status.RUNNING])
        self.running.append([r for r in self._joining if r.status is Status.RUNNING])
        self.has_finished_rows = False
        leave_out_finishing(in_flight, self.running)
        self._joining = list(self._admit())
        if self._joining:
            decision.launch = Launch(ForwardMode.EXTEND, self._joining, [])
        elif len(self.running):
            self.memory.reserve_pages(self.running.num_new_pages)
            self.running.begin_steps()
            decision.launch = Launch(ForwardMode.DECODE, [], self.running.requests)
        return decision

    def _admit(self):
        while self._has_room():
            request = self._waiting.popleft()
            self.num_slots_used += 1
            self._num_reserved += self._need(request)
            self.memory.reserve_pages(-(-request.prompt_len // self.memory.page_size))
            request.status, request.seq_len = Status.RUNNING, request.prompt_len
            request.take_chunk(request.prompt_len)
            yield request

    def _has_room(self):
        if not self._waiting or self.num_slots_used == self._config.max_rows:
            return False
        return self._num_reserved + self._need(self._waiting[0]) <= self._config.pool_tokens

    def _need(self, request):
        return self.memory.ceil_page(request.prompt_len + request.max_new_tokens)

    def give_back(self, request):
        self.memory.pool.free(*self.spans(request, request.seq_len))
        self._num_reserved -= self._need(request)
        self.free_slot(request)

    # A request may leave with the result that is in flight, so that another one is admitted.
    repeats = property(lambda s: s.num_slots_used == len(s.running) and not s._has_room())

    def token_ids(self, request, num_tokens):
        return request.tokens.token_ids(num_tokens)

    def spans(self, request, num_tokens):
        due = -(-num_tokens // self.memory.page_size) - len(request.pages)
        request.pages = request.pages.concat(self.memory.pool.take_reserved(due))
        return [request.pages]


class Slots(Family):
    """The family, as the project uses it."""

    name = "slots"
    title = "Slots"

    def section(self):
        return SlotsSection

    def build(self, config, pool):
        return SlotsScheduler(config, SlotsMemory(pool))
