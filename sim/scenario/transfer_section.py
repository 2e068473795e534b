"""The `transfer` key: the links between servers, on which KV is sent."""

from typing import Annotated

from pydantic import Field

from sim.strict_model import StrictModel

# A bandwidth may be infinite: `.inf`.
_Bandwidth = Annotated[float, Field(ge=0.001, allow_inf_nan=True)]


class TransferSection(StrictModel):
    """How KV gets from prefill servers to decode servers.

    Transfers that share a link at a time share its bandwidth; docs/explanation/disaggregation.md
    says how.
    """

    bandwidth_gb_s: _Bandwidth
    """Bandwidth of each server's links: all its network interfaces together, in each direction. At
    least 0.001; `.inf`: transfers take `latency_s` alone. Unit: GB/s (10**9 bytes a second)."""
    latency_s: Annotated[float, Field(ge=0, le=60)] = 0.0
    """Time of each transfer before its first byte is sent. Unit: s."""
    fabric_gb_s: _Bandwidth | None = None
    """Bandwidth of all transfers of the deployment together. At least 0.001; `null`: no limit.
    Unit: GB/s."""
    send_queues: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Queues of each sender. A queue sends one transfer after another, and all that a sender has
    for one target are in the same queue. 0: a sender begins all its transfers at once. `null`: as
    the engine has it, 4 with SGLang and 0 with vLLM's NIXL connector. Unit: queues."""
    timeout_s: Annotated[float, Field(gt=0, le=10**7)] | None = None
    """A transfer that has not arrived after this long fails; waiting in a queue counts. `null`:
    never. Unit: s."""
    failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of attempts that fail. It shows when the last byte should have arrived. The draws
    depend on the scenario's `seed` and the requests, not on the order of transfers. Unit:
    share."""
    max_retries: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often a transfer is attempted again before it fails for good. Unit: attempts."""
