"""The block tables of one request, one for each group of layers."""

from typing import Final

# Stands in a table where the layers need no block (vLLM's null block).
NULL: Final = -1


class GroupTable:
    """A request's blocks for one group of layers.

    Attributes:
        blocks: in order of its tokens; `NULL` where the layers need none.
        num_cached: the first `num_cached` blocks are done with: found, or cached, or not worth it.
    """

    __slots__ = ("blocks", "num_cached")

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.num_cached = 0


class GroupTables:
    """The block tables of an admitted request.

    Attributes:
        of_groups: one for each group.
        number: the request's admission number.
        boundaries: where later requests are likely to go on from: behind all of the prompt but its
            last token, and where another request's prompt was seen to leave this one's. Layers with
            a window or a state keep what is needed there.
    """

    __slots__ = ("boundaries", "number", "of_groups")

    def __init__(self, of_groups: list[GroupTable], number: int, boundaries: list[int]) -> None:
        self.of_groups = of_groups
        self.number = number
        self.boundaries = boundaries
