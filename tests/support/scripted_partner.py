"""The server at the other end of transfers, as a case's script, for servers that run alone."""

from collections.abc import Callable, Mapping

from sim.core.packed import Line
from sim.core.units import NS_PER_S
from sim.des.clock import TRANSFER_END, Clock, TimedEvent
from sim.des.replicas.one_server import Server


class ScriptedPartner:
    """Hears what a server tells about its requests, and answers when each request's script says so.

    A script's keys are those of oracle/sglang/partner.py.

    Attributes:
        room: when room was made for each request, and how many of its tokens are cached.
        sent: for each request the time, the tokens computed, and whether they are all.
    """

    def __init__(self, env: Clock, server: Server, scripts: Mapping[str, Line]) -> None:
        self._env, self._server, self._scripts = env, server, scripts
        self._role = server.engine.role
        self._role.partner = self
        self._is_over: set[str] = set()
        self.room: dict[str, tuple[int, int]] = {}
        self.sent: dict[str, list[tuple[int, int, bool]]] = {}

    def arrived(self, rid: str) -> None:
        """A request has arrived at the server."""
        script, role = self._scripts[rid], self._role
        if role.keeps_prompts:
            num_cached = script.get("cached", 0)
            self._after(
                script.get("ready_after", 0.0), lambda: role.partner_allocated(rid, num_cached)
            )
        if "fails_after" in script:
            self._after(script["fails_after"], lambda: self._fail(rid))

    def allocated(self, rid: str, num_cached_tokens: int) -> None:
        self.room[rid] = (self._env.now_ns, num_cached_tokens)
        received = self._role.received
        self._after(self._scripts[rid]["transfer"], lambda: self._arrive(rid, received))

    def computed(self, rid: str, num_tokens: int, *, is_last: bool, from_ns: int = 0) -> None:
        if from_ns > self._env.now_ns:
            event = TimedEvent(self._env, from_ns - self._env.now_ns, TRANSFER_END)
            event.callbacks.append(lambda _: self.computed(rid, num_tokens, is_last=is_last))
            return
        sent = self.sent.setdefault(rid, [])
        num_sent = sent[-1][1] if sent else self._scripts[rid].get("cached", 0)
        if is_last or num_tokens > num_sent:
            sent.append((self._env.now_ns, num_tokens, is_last))
        if is_last:
            self._after(self._scripts[rid]["transfer"], lambda: self._arrive(rid, self._role.sent))

    def _arrive(self, rid: str, tell: Callable[[str], None]) -> None:
        if rid not in self._is_over:
            self._is_over.add(rid)
            tell(rid)

    def _fail(self, rid: str) -> None:
        self._arrive(rid, self._role.transfer_failed)

    def _after(self, delay_s: float, tell: Callable[[], None]) -> None:
        event = TimedEvent(self._env, round(delay_s * NS_PER_S), TRANSFER_END)
        event.callbacks.append(lambda _: self._tell(tell))

    def _tell(self, tell: Callable[[], None]) -> None:
        self._server._end_wait_at_poll(self._server.engine)
        tell()
        self._server._wake()
