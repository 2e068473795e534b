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
