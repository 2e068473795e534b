"""The input of all comparisons of one model: prompts, plain logits, and the tolerance."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from realrun.check.comparison import max_error
from realrun.check.plain import in_higher_precision, last_logits
from realrun.model.kv_tensors import KVTensors
from realrun.model.paged_model import PagedModel

NUM_DECODES = 8

_PROMPT_SEED = 11
_ROUNDING_ERRORS = 4
_COPIES = 3


@dataclass(frozen=True, slots=True, eq=False)
class CheckCase:
    """A model with pages, prompts, and the logits that plain transformers computes for them.

    Attributes:
        model: the model.
        kv: KV tensors with enough pages for every comparison.
        prompts: token ids by the prompt's name; the lengths are around page boundaries.
        plain: for each prompt, plain transformers' logits [vocab_size] after its last token.
        tolerance: largest allowed difference of two computations of the same logits.
    """

    model: PagedModel
    kv: KVTensors
    prompts: dict[str, list[int]]
    plain: dict[str, Tensor]
    tolerance: float


def make_check_case(model: PagedModel, page_size: int) -> CheckCase:
    """Compute the plain logits and the tolerance.

    The tolerance is four rounding errors. The rounding error of a dtype is the largest difference
    between plain transformers and the same weights in the next higher precision (float64 for
    float32, float32 for other dtypes). Each computation of the logits may have about this error,
    so two may differ by twice as much. The factor is doubled again, because other computations may
    have a larger error than this one. A wrong page changes logits far more than this: see the
    tests.

    Raises:
        InputError: the page size is out of range, or there is no memory for the pages.
    """
    prompts = make_prompts(page_size, model.max_positions, model.shape.vocab_size)
    plain = {rid: last_logits(model.model, tokens)[0] for rid, tokens in prompts.items()}
    exact_model = in_higher_precision(model.model)
    error = max(
        max_error(plain[rid], last_logits(exact_model, tokens)[0])
        for rid, tokens in prompts.items()
    )
    num_tokens = sum(len(tokens) + NUM_DECODES + page_size for tokens in prompts.values())
    kv = KVTensors(model, num_pages=_COPIES * num_tokens // page_size + 1, page_size=page_size)
    return CheckCase(model, kv, prompts, plain, _ROUNDING_ERRORS * error)


def make_prompts(page_size: int, max_positions: int, vocab_size: int) -> dict[str, list[int]]:
    """Prompts of one token, of one page, one token less or more than a page, and several pages."""
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
