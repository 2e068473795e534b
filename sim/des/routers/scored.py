"""Routing by scores: of the prefix cache, of the queue, and of the KV in use.

The rules are those of llm-d's router (llm-d-inference-scheduler, commit 520af478 of May 2026;
`pkg/epp/framework/plugins/scheduling`): precise-prefix-cache-scorer or prefix-cache-scorer,
queue-scorer, kv-cache-utilization-scorer and max-score-picker; blocks in tiers as in
pkg/kvcache/kvblock_scorer.go of llm-d-kv-cache (commit 7be76e11).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sim.core.request import RequestSpec
from sim.core.routing import Knowledge, ScoreWeights, TierCredits
from sim.des.routers.caches import Caches
from sim.des.routers.router import RoutedReplica


class ServerMetrics(NamedTuple):
    """What a server's `/metrics` says.

    Attributes:
        num_waiting: requests in its queue.
        kv_usage: share of its KV pool that requests use.
    """

    num_waiting: int
    kv_usage: float


class Scored:
    """Chooses the replica with the highest score; at random among equal ones.

    Attributes:
        caches: what the replicas have cached, as far as the router knows.
        read_metrics: reads the metrics of all replicas; None: nothing is known of them.
        predicted_tokens: how many tokens of the latest prompt are thought to be cached where it
            was sent; None: caches do not matter.

    Args:
        knowledge: how the router learns of the caches.
        credit: what a cached block is worth, by tier.
        weights: of the parts of a score.
        metrics_interval_ns: metrics that were read this long ago are read anew.
        max_prefix_tokens: so much of a prompt is compared with the caches; None: all of it.
        random: what choices among equal scores are drawn from.
    """

    def __init__(
        self,
        *,
        knowledge: Knowledge,
        credit: TierCredits,
        weights: ScoreWeights,
        metrics_interval_ns: int,
        max_prefix_tokens: int | None,
        random: np.random.Generator,
    ) -> None:
        self.caches = Caches(knowledge, credit)
        self.read_metrics: Callable[[], Sequence[ServerMetrics]] | None = None
        self.predicted_tokens: int | None = None
        self._weights = weights
        self._metrics_interval_ns = metrics_interval_ns
        self._max_prefix_tokens = max_prefix_tokens
        self._random = random
        self._metrics: Sequence[ServerMetrics] = ()
        self._read_ns = 0

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        scores = self._load_scores(spec.arrival_ns, len(replicas))
        if not self._weights.prefix:
            return self._pick(scores)
        caches = self.caches
        hits = caches.look_up(spec, len(replicas), self._max_prefix_tokens)
        num_blocks = max(len(caches.keys), 1)
        for number, found in enumerate(hits):
            scores[number] += self._weights.prefix * found.worth(caches.credit) / num_blocks
        chosen = self._pick(scores)
        self.predicted_tokens = caches.sent(spec, chosen, hits[chosen])
        return chosen

    def _load_scores(self, now_ns: int, num_replicas: int) -> list[float]:
        """The parts of the scores that are about queues and the use of KV pools."""
        is_old = not self._metrics or now_ns - self._read_ns >= self._metrics_interval_ns
        if self.read_metrics is not None and is_old:
            self._metrics, self._read_ns = self.read_metrics(), now_ns
        if not self._metrics:
            return [0.0] * num_replicas
        weights, queues = self._weights, [each.num_waiting for each in self._metrics]
        shortest, longest = min(queues), max(queues)
        return [
            weights.queue * ((longest - queue) / (longest - shortest) if longest > shortest else 1)
            + weights.kv_usage * (1 - each.kv_usage)
            for queue, each in zip(queues, self._metrics, strict=True)
        ]

    def _pick(self, scores: Sequence[float]) -> int:
        most = max(scores)
        best = [number for number, score in enumerate(scores) if score == most]
        return best[0] if len(best) == 1 else best[int(self._random.integers(len(best)))]
