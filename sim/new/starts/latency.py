"""A step reads the weights once, and the KV of its context; each new token adds computing."""

from sim.latency.model import StepLatency


class ReadsAndComputes(StepLatency):
    """Says how long a step takes: on the device and on the host, in ns."""

    def __init__(self, *, weights_ms=5.0, context_token_ns=20.0, new_token_us=40.0, host_ms=0.5):
        self.weights_ns = weights_ms * 1e6
        self.context_token_ns = context_token_ns
        self.new_token_ns = new_token_us * 1e3
        self.host_ns = round(host_ms * 1e6)

    def step_ns(self, step):
        reads_ns = self.weights_ns + self.context_token_ns * step.num_context_tokens
        computes_ns = self.new_token_ns * step.num_tokens
        return max(1, round(max(reads_ns, computes_ns))), self.host_ns
