"""The operators of a step, sorted by what their time depends on."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Probe(NamedTuple):
    """Two sizes of a step with equally many new tokens, at which operators are compared.

    Attributes:
        sizes: rows, and tokens of each row.
        x: new tokens of the step.
    """

    sizes: tuple[tuple[int, int], tuple[int, int]]
    x: int


# How the names of DeepEP's operators end.
_MESSAGES = ("_moe_dispatch", "_moe_combine")
PREFILL_PROBE = Probe(((2, 3_000), (6, 1_000)), 6_000)
DECODE_PROBE = Probe(((16, 1_000), (16, 9_000)), 16)


class TimeOperators(Protocol):
    """The time of some operators at one size, in ms.

    Args:
        places: which operators: places in their list.
        num_rows: rows of the step, that is, sequences.
        num_tokens: tokens of each row: the new ones of a prefill row, the whole context of a decode
            row.
        prefix: cached tokens of each prefill row.
        x: new tokens of the step over all rows; without it: what follows from the other sizes.

    Raises:
        InputError: there is no time for this size.
    """

    def __call__(
        self, places: list[int], num_rows: int, num_tokens: int, *, prefix: int = 0, x: int = 0
    ) -> float: ...


class OperatorList:
    """One phase's operators: those of prefill rows, or those of decode rows.

    An operator is asked at the two sizes of a probe. If both times are equal, it depends on the
    number of new tokens alone, as a matrix product does. If not, it depends on the rows, as
    attention does. So no list of names must be kept up to date. The output head is known by its
    name: it runs on one token of each row.

    Attributes:
        tokens: operators that run on every new token.
        rows: operators whose time depends on how tokens are spread over rows.
        head: the output head; empty in the lists of some models.
        experts: with several ranks, the operators that run on every new token of all of them: those
            with `moe` in their names. The package asks for the tokens of one rank, and takes all
            ranks to have as many.
        messages: with several ranks and DeepEP, the operators that send every new token of a rank
            to its experts, and back. The rank with the most tokens takes the longest.
        num_ranks: ranks of attention data parallelism.
    """

    def __init__(
        self,
        names: Sequence[str],
        time_ms: TimeOperators,
        probe: Probe,
        *,
        num_ranks: int = 1,
        left_out: Sequence[str] = (),
        experts_scale: float = 1.0,
    ) -> None:
        """Sort the operators called `names`, but for those in `left_out`.

        With several ranks, the times of the experts are multiplied by `experts_scale`.
        """
        self._time_ms = time_ms
        self._experts_scale = experts_scale
        self.num_ranks = num_ranks
        self.experts: list[int] = []
        self.messages: list[int] = []
        self._new_per_row = probe is DECODE_PROBE
        self.tokens: list[int] = []
        self.rows: list[int] = []
        self.head: list[int] = []
        for place, name in enumerate(names):
            if name in left_out:
                continue
            if "logits" in name:
                self.head.append(place)
            elif num_ranks > 1 and name.endswith(_MESSAGES):
                self.messages.append(place)
            elif num_ranks > 1 and "moe" in name:
                self.experts.append(place)
            elif len({time_ms([place], *size, x=probe.x) for size in probe.sizes}) == 1:
                self.tokens.append(place)
            else:
                self.rows.append(place)

    def tokens_ms(self, num_tokens: int) -> float:
        """Time of the operators that run on every new token."""
        rows, tokens = (num_tokens, 1) if self._new_per_row else (1, num_tokens)
        return self._time_ms(self.tokens, rows, tokens, x=num_tokens)

    def experts_ms(self, num_group_tokens: int) -> float:
        """Time of the operators that run on every new token of all ranks."""
        share = -(-num_group_tokens // self.num_ranks)
        return self._experts_scale * self._ms_of(self.experts, share)

    def messages_ms(self, num_rank_tokens: int) -> float:
        """Time of the operators that send every new token of the rank with the most of them."""
        return self._ms_of(self.messages, num_rank_tokens)

    def _ms_of(self, places: list[int], num_tokens: int) -> float:
        rows, tokens = (num_tokens, 1) if self._new_per_row else (1, num_tokens)
        return self._time_ms(places, rows, tokens, x=num_tokens) if places else 0.0

    def head_ms(self, num_rows: int) -> float:
        """Time of the output head."""
        return self._time_ms(self.head, 1, num_rows, x=num_rows) if self.head else 0.0

    def rows_ms(self, num_rows: int, num_tokens: int, num_cached: int = 0) -> float:
        """Time of attention and its like, for rows of `num_tokens` tokens each.

        Args:
            num_rows: equal rows.
            num_tokens: new tokens of each prefill row, or the context of each decode row.
            num_cached: cached tokens of each prefill row.
        """
        return self._time_ms(self.rows, num_rows, num_tokens, prefix=num_cached)
