"""Plain transformers: logits of whole sequences, without pages."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor
from transformers import PreTrainedModel


def in_higher_precision(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the model in float64 if it is float32, else in float32."""
    dtype = torch.float64 if model.dtype is torch.float32 else torch.float32
    return deepcopy(model).to(dtype)


@torch.inference_mode()
def last_logits(model: PreTrainedModel, tokens: Sequence[int], count: int = 1) -> Tensor:
    """Logits [count, vocab_size] after each of the last `count` tokens of a sequence."""
    token_ids = torch.tensor([list(tokens)], device=model.device)
    output = model(input_ids=token_ids, use_cache=False, logits_to_keep=count)
    logits: Tensor = output.logits[0]
    return logits
