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
        junction: tokens that it shares with earlier requests, if not all groups could go on from
            there; 0: they could. Other requests are likely to share them, too.
        prompt_len: tokens of its prompt.
    """

    __slots__ = ("junction", "number", "of_groups", "prompt_len")

    def __init__(
        self, of_groups: list[GroupTable], number: int, prompt_len: int, junction: int
    ) -> None:
        self.of_groups = of_groups
        self.number = number
        self.junction = junction
        self.prompt_len = prompt_len
