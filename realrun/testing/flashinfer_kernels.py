"""What FlashInfer's kernels compute, on the memory of a lazy GPU.

Each function gets the arguments of a call by their names, with the memory of tensors.
"""

from typing import Any

import torch
from torch import Tensor

from realrun.testing.flashinfer_contract import ContractError, require

Arguments = dict[str, Any]

_CAUSAL = 1


def attend(name: str, given: Arguments) -> None:
    """Attention of all rows, with the plan and the lists that are on the device now."""
    kv_indptr = given["paged_kv_indptr"]
    queries = given.get("qo_indptr")
    if queries is None:
        queries = torch.arange(len(kv_indptr), dtype=torch.int32)
    tables = [kv_indptr] if "qo_indptr" not in given else [queries, kv_indptr]
    planned = given["int_workspace_buffer"].view(torch.int32)[: 1 + sum(map(len, tables))]
    num_blocks = given["plan_info_vec"][0]
    require(int(planned[0]) == num_blocks, f"{name}: another number of blocks than was launched")
    if not torch.equal(planned[1:], torch.cat(tables)):
        raise ContractError(f"{name}: the plan on the device is that of another batch")
    keys, values = given["paged_k_cache"], given["paged_v_cache"]
    num_pages, page_size = keys.shape[:2]
    last = given["paged_kv_last_page_len"]
    require(bool(((last >= 1) & (last <= page_size)).all()), f"{name}: length of a last page")
    pages = given["paged_kv_indices"][: int(kv_indptr[-1])].long()
    in_range = (pages >= 0) & (pages < num_pages)
    require(bool(in_range.all()), f"{name}: a page id out of range")
    is_causal = given.get("mask_mode_code") == _CAUSAL
    for row, length in enumerate(last.tolist()):
        ids = pages[int(kv_indptr[row]) : int(kv_indptr[row + 1])]
        num_tokens = (len(ids) - 1) * page_size + length
        start, end = int(queries[row]), int(queries[row + 1])
        k, v = (each[ids].flatten(0, 1)[:num_tokens].float() for each in (keys, values))
        q = given["q"][start:end].float()
        given["o"][start:end] = _softmax(q, k, v, given["sm_scale"], is_causal=is_causal)


def _softmax(q: Tensor, k: Tensor, v: Tensor, scale: float, *, is_causal: bool) -> Tensor:
    """Attention of one row: [tokens, heads, width]; its queries are its last tokens."""
    group = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(group, dim=1) for each in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if is_causal:
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool).tril(len(k) - len(q)).logical_not()
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), v)


def silu_and_mul(given: Arguments) -> None:
    """SiLU of the first half times the second half."""
    gate, up = given["input"].float().chunk(2, dim=-1)
    given["out"].copy_(torch.nn.functional.silu(gate) * up)


def rms_norm(given: Arguments) -> None:
    given["out"].copy_(_normalised(given["input"], given["weight"], given["eps"]))


def add_rms_norm(given: Arguments) -> None:
    total = given["residual"].float() + given["input"].float()
    given["residual"].copy_(total)
    given["input"].copy_(_normalised(total, given["weight"], given["eps"]))


def _normalised(rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    rows = rows.float()
    return rows * (rows.square().mean(dim=-1, keepdim=True) + epsilon).rsqrt() * weight.float()


def rotate(given: Arguments) -> None:
    cos, sin = given["cos_sin_cache"][given["pos_ids"]].unsqueeze(1).chunk(2, dim=-1)
    for source, target in (("q", "q_rope"), ("k", "k_rope")):
        first, second = given[source].float().chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        given[target].copy_(turned)
