"""What all comparisons of one model share: prompts, plain logits, and what counts as equal."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from realrun.check.comparison import max_error
from realrun.check.plain import in_higher_precision, last_logits, plain_attention
from realrun.kv_tensors import KVTensors
from realrun.model import PagedModel

NUM_DECODES = 8

_PROMPT_SEED = 11
_ROUNDING_ERRORS = 4
_COPIES = 3


@dataclass(frozen=True, slots=True, eq=False)
class CheckCase:
    """A model with pages, and what transformers alone computes with it.

    Attributes:
        model: the model.
        kv: pages enough for any of the comparisons.
        prompts: token ids by name; of lengths around page boundaries.
        plain: for each prompt, the logits [vocab_size] after its last token.
        tolerance: how far apart two computations of the same logits may lie.
    """

    model: PagedModel
    kv: KVTensors
    prompts: dict[str, list[int]]
    plain: dict[str, Tensor]
    tolerance: float

    @property
    def longest(self) -> int:
        """Tokens of the longest request the model takes."""
        return self.model.max_positions


def make_check_case(model: PagedModel, page_size: int) -> CheckCase:
    """Compute the plain logits, and how exact they are.

    A dtype's rounding makes some error of its own: that of plain transformers against the same
    weights in the next higher precision (float64 for float32, float32 for the others). Any order
    of the same sums makes one of about that size, so two of them may differ by the sum of both;
    twice that is allowed, as these are maxima over some hundred thousand logits at most. Reading
    or writing a wrong page moves logits by a large share of their spread, see the tests.

    Raises:
        InputError: a page size out of range, or no memory for the pages.
    """
    prompts = make_prompts(page_size, model.max_positions, model.vocab_size)
    with plain_attention(model) as plain_model:
        plain = {rid: last_logits(plain_model, tokens)[0] for rid, tokens in prompts.items()}
        exact_model = in_higher_precision(plain_model)
    error = max(
        max_error(plain[rid], last_logits(exact_model, tokens)[0])
        for rid, tokens in prompts.items()
    )
    num_tokens = sum(len(tokens) + NUM_DECODES + page_size for tokens in prompts.values())
    kv = KVTensors(model, num_pages=_COPIES * num_tokens // page_size + 1, page_size=page_size)
    return CheckCase(model, kv, prompts, plain, _ROUNDING_ERRORS * error)


def make_prompts(page_size: int, max_positions: int, vocab_size: int) -> dict[str, list[int]]:
    """Prompts of one token, of one page and a token more or less, and over several pages."""
    rng = np.random.default_rng(_PROMPT_SEED)
    lengths = {
        "one": 1,
        "under": page_size - 1,
        "page": page_size,
        "over": page_size + 1,
        "long": 3 * page_size + 21,
    }
    longest = max_positions - NUM_DECODES - 1
    return {
        rid: rng.integers(vocab_size, size=max(1, min(length, longest))).tolist()
        for rid, length in lengths.items()
    }
