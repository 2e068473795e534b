"""CUDA graphs: kernels captured for some numbers of decode rows; other numbers are padded.

captured for 1, 2, 4, 8, 12, 16 rows:  13 decode rows run as 16, 17 run without a graph
"""

from bisect import bisect_left
from collections.abc import Sequence


def graph_rows(num_rows: int, graph_sizes: Sequence[int]) -> int:
    """Rows of the smallest decode graph with room for `num_rows`; 0: no graph has room."""
    index = bisect_left(graph_sizes, num_rows)
    return graph_sizes[index] if index < len(graph_sizes) else 0


def padded_rows(num_rows: int, graph_sizes: Sequence[int]) -> int:
    """Rows that the kernels of a step of `num_rows` decode rows compute."""
    return graph_rows(num_rows, graph_sizes) or num_rows
