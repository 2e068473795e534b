"""A request on a vLLM server: the state that other families do not have."""

from sim.core.request import RequestSpec
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch
from sim.engine.scheduler import Decision, Launch
from sim.vllm.cache.request_blocks import RequestBlocks


class VllmRequest(Request):
    """A request on a vLLM server.

    Attributes:
        kv: its tokens and its block table.
        entry: number of its entry into the waiting queue, counted over all requests.
        admission: number of its latest admission, counted over all requests.
        fill_len: tokens that must be computed before it decodes, set at its admission.
    """

    __slots__ = ("admission", "entry", "fill_len", "kv")

    def __init__(self, spec: RequestSpec, kv: RequestBlocks, *, limit: int) -> None:
        super().__init__(spec, limit=limit, priority=spec.priority or 0)
        self.kv = kv
        self.entry = self.admission = self.fill_len = 0


VllmBatch = RunningBatch[VllmRequest]
VllmLaunch = Launch[VllmRequest]
VllmDecision = Decision[VllmRequest]
