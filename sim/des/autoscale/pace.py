"""How fast a fleet may follow its rule: the behaviour of Kubernetes' HorizontalPodAutoscaler.

Source: Kubernetes, pkg/controller/podautoscaler/horizontal.go:
`stabilizeRecommendationWithBehaviors`, `convertDesiredReplicasWithBehaviorRate`,
`calculateScaleUpLimitWithScalingRules`, `calculateScaleDownLimitWithBehaviors`,
`recordInitialRecommendation`. Defaults: pkg/apis/autoscaling/v2/defaults.go.
"""

import math
from typing import NamedTuple


class Pace(NamedTuple):
    """How fast a fleet may grow, or shrink.

    Attributes:
        window_ns: it follows the most cautious recommendation of this time.
        replicas: it may change by this many replicas in a period; None: no such limit.
        percent: it may change by this percentage in a period; None: no such limit.
        period_ns: the period. If both limits are given, the one that allows more counts.
    """

    window_ns: int
    replicas: int | None
    percent: float | None
    period_ns: int


class Follower:
    """Decides how many replicas there shall be from what a rule recommends over time."""

    def __init__(self, up: Pace, down: Pace, sizes: tuple[int, int], num_initial: int) -> None:
        """Begin at time 0 with `num_initial` replicas, which counts as a recommendation.

        Args:
            up: how fast the fleet may grow.
            down: how fast it may shrink.
            sizes: the smallest and the largest fleet.
            num_initial: replicas at time 0.
        """
        self._up = up
        self._down = down
        self._fewest, self._most = sizes
        self._recommended: list[tuple[int, int]] = [(0, num_initial)]
        # When the number changed, and by how much.
        self._changes: list[tuple[int, int]] = []

    def follow(self, now_ns: int, current: int, recommended: int) -> int:
        """The number of replicas from now on.

        Args:
            now_ns: the time, which rises from call to call.
            current: the number up to now.
            recommended: what the rule says now.
        """
        wanted = self._steadied(now_ns, current, recommended)
        if wanted > current:
            wanted = min(wanted, self._most, max(current, self._upper(now_ns, current)))
        elif wanted < current:
            wanted = max(wanted, self._fewest, min(current, self._lower(now_ns, current)))
        if wanted != current:
            longest_ns = max(self._up.period_ns, self._down.period_ns)
            self._changes = [change for change in self._changes if change[0] > now_ns - longest_ns]
            self._changes.append((now_ns, wanted - current))
        return wanted

    def _steadied(self, now_ns: int, current: int, recommended: int) -> int:
        """The number nearest to the current one that both windows allow.

        The fleet grows at most to the lowest recommendation of one window, and shrinks at most to
        the highest of the other.
        """
        most = min([recommended, *self._since(now_ns - self._up.window_ns)])
        fewest = max([recommended, *self._since(now_ns - self._down.window_ns)])
        longest_ns = max(self._up.window_ns, self._down.window_ns)
        self._recommended = [one for one in self._recommended if one[0] > now_ns - longest_ns]
        self._recommended.append((now_ns, recommended))
        return min(max(current, most), fewest)

    def _since(self, begin_ns: int) -> list[int]:
        """The recommendations after a time."""
        return [number for at_ns, number in self._recommended if at_ns > begin_ns]

    def _upper(self, now_ns: int, current: int) -> int:
        """The most replicas that the pace allows; fewer than now if the fleet grew just before."""
        pace = self._up
        before = current - sum([by for by in self._changes_in(now_ns, pace) if by > 0])
        limits = []
        if pace.replicas is not None:
            limits.append(before + pace.replicas)
        if pace.percent is not None:
            limits.append(math.ceil(before * (1 + pace.percent / 100)))
        return max(limits, default=self._most)

    def _lower(self, now_ns: int, current: int) -> int:
        """The fewest replicas that the pace allows; more than now if it shrank just before."""
        pace = self._down
        before = current - sum([by for by in self._changes_in(now_ns, pace) if by < 0])
        limits = []
        if pace.replicas is not None:
            limits.append(before - pace.replicas)
        if pace.percent is not None:
            limits.append(int(before * (1 - pace.percent / 100)))
        return min(limits, default=self._fewest)

    def _changes_in(self, now_ns: int, pace: Pace) -> list[int]:
        return [by for at_ns, by in self._changes if at_ns > now_ns - pace.period_ns]
