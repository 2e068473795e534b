"""The start files of small classes, below each other: `sim.new.__main__` divides them."""

# ---- policy
"""Shortest prompt first; but requests that have waited too long go first, oldest first."""

from sim.sglang.policies.policy import CacheBlind


class ShortestPromptFirst(CacheBlind):
    """Orders the waiting queue."""

    def __init__(self, config, *, late_ms=1000):
        super().__init__(config)
        self.late_ns = late_ms * 1_000_000

    def order(self, waiting, view):
        def key(request):
            arrival_ns = request.spec.arrival_ns
            is_late = view.now_ns - arrival_ns >= self.late_ns
            return (0, arrival_ns) if is_late else (1, request.prompt_len)

        return sorted(waiting, key=key)


# ---- fairness
"""In each pass the oldest requests go first, then the others in the policy's order."""


class OldestFirst:
    """Changes the order of a schedule policy."""

    def __init__(self, *, num_oldest=1):
        self.num_oldest = num_oldest

    def reorder(self, ordered, now_ns, deferred):
        by_age = sorted(ordered, key=lambda request: request.spec.arrival_ns)
        oldest = by_age[: self.num_oldest]
        return oldest + [request for request in ordered if request not in oldest]


# ---- admission
"""A pass considers the first requests, until their prompts exceed a number of tokens."""


class FewPrompts:
    """Selects the waiting requests that a prefill pass considers."""

    def __init__(self, config, *, most_tokens=2048):
        self.most_tokens = min(most_tokens, config.max_prefill_tokens)

    def candidates(self, waiting, num_slots):
        chosen, num_left = [], self.most_tokens
        for request in waiting:
            num_left -= request.prompt_len
            if chosen and num_left < 0:
                break
            chosen.append(request)
        return chosen


# ---- eviction
"""Evicts the far ends of long prompts first, because few requests share them."""


class FarEndsFirst:
    """Ranks the nodes of the prefix cache: the leaf with the lowest rank is evicted first."""

    def __init__(self, *, bucket_tokens=256):
        self.bucket_tokens = bucket_tokens

    def rank(self, node):
        return -(node.end // self.bucket_tokens), node.last_used_tick


# ---- router
"""A tenant's requests go to one replica, unless that replica is much busier than another."""


class TenantHome:
    """Chooses a replica for each request, in order of arrival."""

    def __init__(self, *, most_ahead=8):
        self.most_ahead = most_ahead
        self.homes = {}

    def choose(self, spec, replicas):
        loads = [replica.num_unfinished for replica in replicas]
        home = self.homes.setdefault(spec.tenant, len(self.homes) % len(loads))
        is_busy = loads[home] > min(loads) + self.most_ahead
        return loads.index(min(loads)) if is_busy else home


# ---- latency
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


# ---- workload
"""Bursts of requests, each with a prefix that all requests of the burst share."""


class Bursts:
    """Makes the traffic."""

    def __init__(self, traffic, *, num_bursts=5, size=20, every_s=2.0):
        self.traffic, self.num_bursts, self.size, self.every_s = traffic, num_bursts, size, every_s

    def arrivals(self):
        traffic, lengths = self.traffic, self.traffic.random("lengths")
        for burst in range(self.num_bursts):
            shared = traffic.text()
            for _ in range(self.size):
                prompt = [(shared, 500), (traffic.text(), lengths.integers(20, 200))]
                output_tokens = lengths.integers(1, 60)
                yield traffic.request(prompt, output_tokens, arrival_s=burst * self.every_s)
