"""Where a trade-off bends: the setting beyond which a little more benefit costs much."""

from collections.abc import Sequence

# Of the unit square's side. A quarter of a circle bends by 0.29, a right angle by 0.71.
_MIN_BEND = 0.05


def knee(costs: Sequence[float], benefits: Sequence[float]) -> int | None:
    """The point farthest from the chord between the ends, on the better side of it.

    Both axes are scaled to the range of the points first, so that units do not matter.

    Args:
        costs: of each setting, less is better; in the order of the swept value.
        benefits: of each setting, more is better.

    Returns:
        the point's index. None if the points lie along the chord or on its worse side, if there
        are fewer than three, or if one end is at least as good as the other in both, so that
        nothing is traded.

    Raises:
        ValueError: not as many costs as benefits.
    """
    points = list(zip(_scaled(costs), _scaled(benefits), strict=True))
    if len(points) < 3:
        return None
    (start_x, start_y), (end_x, end_y) = points[0], points[-1]
    width, height = end_x - start_x, end_y - start_y
    if width * height <= 0:
        return None
    length = (width**2 + height**2) ** 0.5
    # Positive where benefit is above the chord's; the chord may run either way.
    above = [(abs(width) * (y - start_y) - abs(height) * (x - start_x)) / length for x, y in points]
    farthest = max(range(len(above)), key=above.__getitem__)
    return farthest if above[farthest] >= _MIN_BEND else None


def _scaled(values: Sequence[float]) -> list[float]:
    """From 0 to 1; all equal: all 0."""
    if not values:
        return []
    low, high = min(values), max(values)
    span = high - low
    return [(value - low) / span if span else 0.0 for value in values]
