"""In each pass the oldest requests go first, then the others in the policy's order."""


class OldestFirst:
    """Changes the order of a schedule policy."""

    def __init__(self, *, num_oldest=1):
        self.num_oldest = num_oldest

    def reorder(self, ordered, now_ns, deferred):
        by_age = sorted(ordered, key=lambda request: request.spec.arrival_ns)
        oldest = by_age[: self.num_oldest]
        return oldest + [request for request in ordered if request not in oldest]
