"""What vLLM's scheduler keeps about a request besides what every family keeps."""

from sim.core.request import RequestSpec
from sim.engine.launch import Decision, Launch
from sim.engine.request import Request
from sim.engine.running_batch import RunningBatch
from sim.vllm.cache.request_blocks import RequestBlocks


class VllmRequest(Request):
    """A request on a vLLM server.

    Attributes:
        kv: its tokens and its block table.
        entry: its place in order of arrival.
        admission: its place in order of admission; a new one after each preemption.
        fill_len: tokens to compute before it decodes, as of its admission.
    """

    __slots__ = ("admission", "entry", "fill_len", "kv")

    def __init__(self, spec: RequestSpec, kv: RequestBlocks, *, limit: int) -> None:
        super().__init__(spec, limit=limit, priority=spec.priority or 0)
        self.kv = kv
        self.entry = self.admission = self.fill_len = 0


VllmBatch = RunningBatch[VllmRequest]
VllmLaunch = Launch[VllmRequest]
VllmDecision = Decision[VllmRequest]
