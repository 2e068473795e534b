"""What transfers and links did during a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What one link carried.

    Attributes:
        num_bytes: of all attempts that ended, also of those that failed.
        busy_ns: for how long there was at least one transfer on it.
    """

    num_bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class TransferStats:
    """What the transfers of a run did.

    Attributes:
        num_transfers: that arrived.
        num_bytes: of those.
        num_failed: given up.
        num_retries: attempts after the first.
        queue_ns: time in queues, of all together.
        total_ns: time from start to arrival, queues included, of all that arrived together.
        sent: the outgoing link of each sender, by replica.
        received: the incoming link of each receiver, by replica.
        fabric: what all servers share; None: it has no limit.
    """

    num_transfers: int
    num_bytes: int
    num_failed: int
    num_retries: int
    queue_ns: int
    total_ns: int
    sent: dict[int, LinkUse]
    received: dict[int, LinkUse]
    fabric: LinkUse | None
