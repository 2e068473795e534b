"""What a server does for requests that it shares with servers of another role.

A request's prompt is computed on a prefill server and its answer on a decode server. The driver
carries messages and KV between the two, and takes time for it:

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

from mypy_extensions import mypyc_attr

from sim.engine.live_requests import LiveRequests
from sim.engine.records import Decided, Launch, RequestRecord
from sim.engine.request import Request
from sim.engine.scheduler import BaseScheduler
from sim.engine.server_config import Partner


@mypyc_attr(allow_interpreted_subclasses=True)
class Role:
    """Base class, and the role of a server that computes whole requests: nothing is to be done.

    Attributes:
        engine, scheduler: the engine that has this role, and its scheduler.
        keeps_prompts: a request whose prompt is computed is the role's (`prompt_computed`); it does
            not decode here.
        sending: requests whose prompts are computed and whose KV has not left yet, by rid.
        polls_at_steps: a rank that waits for something decides once in each step of its group, also
            in steps without work.
        waits_without_step: a decision that launches nothing holds the server's loop up, too, for as
            long as it waits for copies.
    """

    keeps_prompts: bool
    polls_at_steps: bool
    waits_without_step: bool

    def __init__(self) -> None:
        self.keeps_prompts = self.polls_at_steps = self.waits_without_step = False
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

    def launched(self, launch: Launch[Request]) -> None:
        """In a pass, a step was decided; it is the newest in flight."""

    def step_ends(self, end_ns: int) -> None:
        """The step that was just begun, or one without work, will end then on all devices."""

    def begin_result(self, now_ns: int) -> None:
        """The result of the oldest step in flight is taken in next."""

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

    def overhears(self, rid: str) -> bool:
        """Whether nothing is done about a client that gives this request up."""
        return False

    def aborts(self, request: Request) -> bool:
        """A request ends early; returns whether the role sees to it."""
        return False
