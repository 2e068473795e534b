"""Carries requests from prefill servers to decode servers, with their KV and all messages.

    client     prefill server              here                  decode server      client
      | ------------> submit                                        |                  |
      | ----------------------------------------------------> submit (or after prefill)|
                                 <- partner_allocated <- allocated  |                  |
                computed, chunk by chunk -> transfers               |                  |
                sent            <-   the last has arrived  -> received -> tokens ----> |

With SGLang both servers get a request when it arrives. With vLLM its decode server gets it when
its prompt is computed (`after_prefill`).
"""

from collections.abc import Iterable, Sequence
from typing import cast

from sim.core.errors import InputError, require
from sim.core.request import RequestSpec, Status
from sim.des.clock import TRANSFER_END, Clock, TimedEvent
from sim.des.replicas.replica import Replica
from sim.des.routers.router import RoutedServers, Router, Target
from sim.des.traffic import SimulationLog
from sim.des.transfers.transfers import Transfers
from sim.engine.core import EngineCore
from sim.engine.records import RequestRecord
from sim.engine.request import NEVER_NS, Request
from sim.runlog.builder import StepRun
from sim.workload.workload import ScriptedRequest


class Handover:
    """One request on its way from its prefill server to its decode server.

    Attributes:
        source, target: its servers; the target is None until it is chosen.
        target_rank: the rank of the target that has the request, once it has allocated its KV.
        num_sent: tokens of its prompt whose KV was sent, or is under way, or is not needed.
        num_computed: tokens of its prompt that are computed.
        allocation_known: the prefill server knows that the decode server has allocated its KV.
        is_submitted: the decode server has it.
        has_arrived: all of its KV is on the decode server.
        is_lost: a transfer failed, or one of its servers gave it up.
        allocated_ns, computed_ns, received_ns, sent_tokens: as in
            `sim.runlog.servers.HandoverColumns`.
    """

    def __init__(self, request: ScriptedRequest, source: Target, target: Target | None) -> None:
        self.request = request
        self.source = source
        self.target = target
        self.num_sent = self.num_computed = self.num_under_way = self.target_rank = 0
        self.is_computed = self.allocation_known = self.is_submitted = False
        self.has_arrived = self.is_lost = False
        self.prefilled: RequestRecord | None = None
        self.allocated_ns = self.computed_ns = self.received_ns = NEVER_NS
        self.sent_tokens = 0

    @property
    def is_fetched(self) -> bool:
        """The decode server has asked for the KV, and its answer is not there yet."""
        return self.allocated_ns != NEVER_NS and not (self.has_arrived or self.is_lost)


class _RoleLog(SimulationLog):
    """What the servers of one role report; requests end for the client when all is done."""

    def __init__(self, log: SimulationLog, handovers: "Handovers") -> None:
        super().__init__()
        self._log = log
        self._handovers = handovers

    def stepped(self, run: StepRun) -> None:
        if self.followers:
            self._tell_followers(run)
        self._log.stepped(run)

    def _over_here(self, records: Sequence[RequestRecord]) -> None:
        """Requests have ended on a server of this role."""
        self._tell_followers_of_ends(records)
        for record in records:
            self._tell(record)


class PrefillLog(_RoleLog):
    """What prefill servers report."""

    def submitted(self, spec: RequestSpec, replica: int) -> None:
        self._handovers.prefill_has(spec.rid)

    def over(self, records: Iterable[RequestRecord], now_ns: int) -> None:
        records = list(records)
        for record in records:
            self._handovers.prefill_over(record)
        self._over_here(records)


class DecodeLog(_RoleLog):
    """What decode servers report."""

    def submitted(self, spec: RequestSpec, replica: int) -> None:
        self._log.submitted(spec, replica)

    def over(self, records: Iterable[RequestRecord], now_ns: int) -> None:
        records = list(records)
        for record in records:
            self._handovers.decode_over(record)
        self._log.over(records, now_ns)
        self._over_here(records)


class Handovers:
    """All requests between their arrival and their end, where prefill and decode have servers.

    It is the `sim.engine.server_config.Partner` of all servers.

    Attributes:
        live: requests that have not ended, by rid.
    """

    def __init__(
        self,
        env: Clock,
        log: SimulationLog,
        transfers: Transfers,
        *,
        message_ns: int,
        after_prefill: bool,
        chooses_late: bool,
    ) -> None:
        """Begin without requests; `connect` sets the servers.

        `message_ns` is the time of a message from one server to another. With `after_prefill` the
        decode server gets a request when its prompt is computed; with `chooses_late` it is chosen
        then, too, and not when the request arrives.
        """
        self._env, self._log, self._transfers = env, log, transfers
        self._message_ns = message_ns
        self._after_prefill, self._chooses_late = after_prefill, chooses_late
        self.live: dict[str, Handover] = {}
        log.builder.keep_handovers()
        self.prefill = self.decode = RoutedServers((), cast("Router", None))

    def connect(self, prefill: RoutedServers, decode: RoutedServers) -> None:
        """Set the servers of both roles."""
        self.prefill, self.decode = prefill, decode
        for target in [*prefill.targets, *decode.targets]:
            self.adopt(target.replica)

    def adopt(self, replica: Replica) -> None:
        """Connect a new server."""
        for engine in replica.engines:
            engine.role.partner = self

    def submit(self, request: ScriptedRequest) -> None:
        spec = request.spec
        source = self.prefill.choose(spec)
        target = None if self._chooses_late else self.decode.choose(spec)
        for each in (source, target):
            # What one server refuses, the other must not wait for.
            if each is not None and self._refuses(each, spec):
                return
        handover = self.live[spec.rid] = Handover(request, source, target)
        if not self._after_prefill:
            self._submit_to_decode(handover)
        source.entry.submit(request)

    def _refuses(self, target: Target, spec: RequestSpec) -> bool:
        record = target.replica.engines[0].rejection(spec)
        if record is not None:
            self._log.submitted(spec, target.number)
            self._log.over([record], self._env.now_ns)
        return record is not None

    def _submit_to_decode(self, handover: Handover) -> None:
        if handover.target is None or handover.target not in self.decode.targets:
            # None was chosen, or the one that was chosen takes no more requests.
            handover.target = self.decode.choose(handover.request.spec)
        handover.is_submitted = True
        handover.target.entry.submit(handover.request)

    # ---- what servers say ----------------------------------------------------------------------

    def allocated(self, rid: str, num_cached_tokens: int) -> None:
        """A decode server has allocated the KV of a prompt; its first tokens are cached there."""
        handover = self.live.get(rid)
        if handover is None:
            return
        handover.allocated_ns = self._env.now_ns
        if handover.target is not None:
            handover.target_rank = _rank_with(handover.target, rid)
        event = TimedEvent(self._env, self._message_ns, TRANSFER_END)
        event.callbacks.append(lambda _: self._allocation_known(rid, handover, num_cached_tokens))

    def prefill_has(self, rid: str) -> None:
        """A request has passed the front end of its prefill server.

        If the front end of its decode server was faster, it may have allocated the KV already.
        Then the prefill server is told now.
        """
        handover = self.live.get(rid)
        if handover is not None and handover.allocation_known:
            event = TimedEvent(self._env, 0, TRANSFER_END)
            event.callbacks.append(lambda _: self._tell_of_allocation(rid, handover))

    def _tell_of_allocation(self, rid: str, handover: Handover) -> None:
        num_cached_tokens = handover.num_sent
        handover.source.replica.notify(
            rid, lambda engine: engine.role.partner_allocated(rid, num_cached_tokens)
        )

    def _allocation_known(self, rid: str, handover: Handover, num_cached_tokens: int) -> None:
        """The prefill server learns that its partner has allocated the KV."""
        if not self._matters(rid, handover):
            return
        handover.allocation_known, handover.num_sent = True, num_cached_tokens
        if not handover.is_computed:
            self._tell_of_allocation(rid, handover)
        self._send(rid, handover)

    def computed(self, rid: str, num_tokens: int, *, is_last: bool, from_ns: int = 0) -> None:
        """A prefill server has computed the KV of a prompt's first tokens: they may be sent."""
        if from_ns > self._env.now_ns:
            event = TimedEvent(self._env, from_ns - self._env.now_ns, TRANSFER_END)
            event.callbacks.append(lambda _: self.computed(rid, num_tokens, is_last=is_last))
            return
        handover = self.live.get(rid)
        if handover is None:
            return
        handover.num_computed = max(handover.num_computed, num_tokens)
        if is_last:
            handover.is_computed, handover.computed_ns = True, self._env.now_ns
        if is_last and self._after_prefill:
            # The client, or a proxy, hears of the prefill and sends the request on.
            event = TimedEvent(self._env, self._message_ns, TRANSFER_END)
            event.callbacks.append(lambda _: self._pass_on(rid, handover))
        else:
            self._send(rid, handover)

    def _pass_on(self, rid: str, handover: Handover) -> None:
        if self.live.get(rid) is handover:
            self._submit_to_decode(handover)

    # ---- transfers -----------------------------------------------------------------------------

    def _send(self, rid: str, handover: Handover) -> None:
        """Send what is computed and not sent, if the decode server has allocated KV for it."""
        target = handover.target
        num_tokens = handover.num_computed - handover.num_sent
        is_due = num_tokens > 0 or handover.is_computed
        if not (handover.allocation_known and is_due) or target is None:
            return
        handover.num_sent = max(handover.num_sent, handover.num_computed)
        handover.num_under_way += 1
        handover.sent_tokens += max(num_tokens, 0)
        self._transfers.start(
            rid,
            (handover.source.number, _rank_with(handover.source, rid)),
            (target.number, handover.target_rank),
            max(num_tokens, 0),
            is_last=handover.is_computed,
            prompt_tokens=len(handover.request.spec.prompt),
            ended=lambda has_arrived: self._transferred(rid, handover, has_arrived),
        )

    def _transferred(self, rid: str, handover: Handover, has_arrived: bool) -> None:
        handover.num_under_way -= 1
        if not has_arrived:
            handover.is_lost = True
        if not self._matters(rid, handover):
            return
        if not has_arrived:
            _fail(handover.source, rid)
            if handover.target is not None:
                _fail(handover.target, rid)
        elif not handover.num_under_way and handover.is_computed and handover.target is not None:
            handover.received_ns = self._env.now_ns
            handover.has_arrived = True
            self._log.received(rid)
            handover.source.replica.notify(rid, lambda engine: engine.role.sent(rid))
            handover.target.replica.notify(rid, lambda engine: engine.role.received(rid))

    def _matters(self, rid: str, handover: Handover) -> bool:
        """Whether a transfer goes on, and its end is news for the servers.

        A decode server that fetches KV cannot break off: it keeps the blocks of a request that has
        ended until the transfer ends, too. It fetches from the moment it has allocated the blocks.
        """
        return self._after_prefill or self.live.get(rid) is handover

    # ---- ends ----------------------------------------------------------------------------------

    def prefill_over(self, record: RequestRecord) -> None:
        """A prefill server has freed a request's KV, or the request has ended there early."""
        rid = record.spec.rid
        handover = self.live.get(rid)
        if handover is None:
            return
        if record.status is Status.FINISHED:
            if not handover.is_computed:
                reason = (
                    "vLLM 0.19.0 ends a request with the token that was in flight when it was"
                    f" preempted, but without KV (request {rid}), and its decode server fails"
                )
                raise InputError(reason, key=("scheduler", "version"))
            handover.prefilled = record
            return
        handover.is_lost = True
        if handover.is_submitted and handover.target is not None:
            _fail(handover.target, rid)
        else:
            del self.live[rid]
            self._log.submitted(record.spec, handover.source.number)
            self._log_handover(rid, handover)
            self._log.over([record], self._env.now_ns)

    def decode_over(self, record: RequestRecord) -> None:
        """A request has ended on its decode server; the record gets what its prefill was."""
        handover = self.live.pop(record.spec.rid, None)
        if handover is None:
            return
        self._log_handover(record.spec.rid, handover)
        first = handover.prefilled
        if first is None:
            first = _record_at(handover.source, record.spec.rid)
            fetches = self._after_prefill and handover.is_fetched
            if record.status is not Status.FINISHED and not fetches:
                _dismiss(handover.source, record.spec.rid)
        if first is not None:
            record.add_prefill(first)

    def _log_handover(self, rid: str, handover: Handover) -> None:
        """Log how a request was handed over, before it is over."""
        stamps_ns = handover.allocated_ns, handover.computed_ns, handover.received_ns
        self._log.handed_over(rid, (handover.source.number, *stamps_ns, handover.sent_tokens))


def _rank_with(target: Target, rid: str) -> int:
    engines = target.replica.engines
    return next((rank for rank, engine in enumerate(engines) if rid in engine.requests), 0)


def _record_at(source: Target, rid: str) -> RequestRecord | None:
    """What a prefill server knows of a request that it still has."""
    for engine in source.replica.engines:
        if rid in engine.requests:
            return engine.record(rid)
    return None


def _fail(target: Target, rid: str) -> None:
    target.replica.notify(rid, lambda engine: engine.role.transfer_failed(rid))


def _dismiss(target: Target, rid: str) -> None:
    target.replica.notify(rid, lambda engine: engine.role.dismiss(rid))


def check_handovers(handovers: Handovers) -> None:
    """Verify that the KV of every prompt is on a server, or on its way, once it is computed.

        computed, not sent     the prefill server has it
        on its way             the prefill server still has it, and the decode server has room
        arrived                the decode server has it

    Raises InvariantError: an invariant is broken; the message names it.
    """
    for rid, handover in handovers.live.items():
        _check_handover(rid, handover)


def _check_handover(rid: str, handover: Handover) -> None:
    prompt_len = len(handover.request.spec.prompt)
    require(
        handover.num_computed <= prompt_len,
        f"{rid}: {handover.num_computed} of {prompt_len} prompt tokens are computed",
    )
    if handover.is_lost:
        return
    source = _request_on(handover.source.replica.engines, rid)
    if handover.num_computed and not handover.has_arrived:
        require(source is not None, f"{rid}: its KV left the prefill server before it arrived")
    if source is not None and not handover.has_arrived:
        require(
            handover.num_computed <= source.seq_len,
            f"{rid}: {handover.num_computed} tokens may be sent, but {source.seq_len} have KV",
        )
    if handover.num_under_way or handover.has_arrived:
        target = None
        if handover.target is not None:
            target = _request_on(handover.target.replica.engines, rid)
        require(target is not None, f"{rid}: its KV is sent to a server that does not know it")
        if target is not None and not target.retractions and not target.preemptions:
            require(
                target.seq_len >= prompt_len - 1,
                f"{rid}: {prompt_len} prompt tokens are sent, but only {target.seq_len} have room",
            )


def _request_on(engines: Sequence[EngineCore], rid: str) -> Request | None:
    return next((engine.requests[rid] for engine in engines if rid in engine.requests), None)
