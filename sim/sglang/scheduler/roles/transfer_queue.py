"""The transfer queue of a decode server: requests that hold KV and whose KV is on its way.

Source: SGLang 0.5.23, `DecodeTransferQueue` in disaggregation/decode.py.
docs/explanation/disaggregation.md has the rules.
"""

from collections.abc import Collection

from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.roles.host_restores import HostRestores
from sim.sglang.scheduler.server import SglangServer


class TransferQueue:
    """Requests in order of allocation, and what is known of all requests' transfers.

    Attributes:
        requests: the queue.
        received: of the queue, requests whose KV has arrived.
        lost: of it and of the preallocation queue, requests whose KV will not come, or that nobody
            waits for.
        given_up: those of them that nobody waits for.
    """

    def __init__(self, server: SglangServer, restores: HostRestores | None) -> None:
        """`restores`: what is loaded for the queue from host memory; None: there is none."""
        self._server = server
        self._restores = restores
        self.requests: list[SglangRequest] = []
        self.received: set[str] = set()
        self.lost: set[str] = set()
        self.given_up: set[str] = set()

    @property
    def has_news(self) -> bool:
        return bool(self.received or self.lost)

    def forget_lost(self, rids: Collection[str]) -> None:
        self.lost.difference_update(rids)
        self.given_up.difference_update(rids)

    def pop(self, agreed: Collection[str] | None = None) -> list[SglangRequest]:
        """`pop_transferred`: take out requests whose KV has arrived, and drop those that are lost.

        `agreed`: with stages, those that all have seen; None: there is one stage.
        """
        restores = self._restores
        if restores is not None:
            restores.advance(self.requests)
        arrived: list[SglangRequest] = []
        if not self.has_news:
            return arrived
        staying: list[SglangRequest] = []
        for request in self.requests:
            rid = request.rid
            is_received = rid in self.received
            if agreed is not None and rid not in agreed:
                staying.append(request)
            elif rid in self.lost or (
                is_received and restores is not None and restores.failed(rid)
            ):
                self.forget_lost([rid])
                self.received.discard(rid)
                if restores is not None:
                    restores.cancel(request)
                self._server.release(request)
                self._server.dropped.append(request)
            elif is_received and (restores is None or restores.is_ready(rid)):
                self.received.remove(rid)
                if restores is not None:
                    restores.end(request)
                arrived.append(request)
            else:
                staying.append(request)
        self.requests = staying
        return arrived
