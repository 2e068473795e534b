"""The arguments that FlashInfer gets: fake wrappers record every call."""

import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from realrun.attention import flashinfer_library
from realrun.attention.flashinfer import (
    FlashInferAttention,
    GraphDecodeAttention,
)
from realrun.attention.flashinfer_shape import (
    AttentionShape,
    attention_shape,
    flashinfer_problem,
    workspace_bytes,
)
from realrun.attention.flashinfer_wrappers import FlashInferWrappers
from realrun.batches.batch_plan import plan_batch
from realrun.batches.plan_tensors import plan_tensors
from realrun.model.kv_tensors import KVTensors
from sim.core.errors import InputError

PAGE_SIZE = 4
MIB = 2**20
LLAMA_8B = AttentionShape(
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    page_size=16,
    dtype=torch.bfloat16,
    device=torch.device("cuda", 0),
)


@dataclass
class Fakes:
    """Makes fake wrappers and marks, and keeps one log of all calls."""

    log: list[tuple[str, Any]] = field(default_factory=list)
    num_made: int = 0

    def num_sms(self):
        return 4

    def workspace(self, num_bytes):
        return torch.zeros(16, dtype=torch.uint8)

    def decode(self, workspace, *, use_tensor_cores):
        return self._make("tensor decode" if use_tensor_cores else "decode")

    def prefill(self, workspace, kernel):
        return self._make(kernel)

    def graph_decode(self, workspace, indices, num_rows, *, use_tensor_cores):
        return self._make(f"graph {num_rows}")

    def mark(self):
        self.num_made += 1
        return FakeMark(self.log, self.num_made)

    def named(self, name):
        return [what for logged, what in self.log if logged == name]

    def _make(self, kind):
        self.num_made += 1
        return FakeWrapper(self.log, f"{kind} #{self.num_made}")


class FakeMark:
    def __init__(self, log, number):
        self._log = log
        self._number = number

    def record(self):
        self._log.append(("record", self._number))

    def synchronize(self):
        self._log.append(("wait", self._number))


class FakeWrapper:
    def __init__(self, log, name):
        self._log = log
        self._name = name

    def plan(self, *args, **options):
        self._log.append(("plan", (self._name, args, options)))

    def run(self, q, paged_kv_cache, *, out):
        self._log.append(("run", self._name))
        return out.copy_(q)


def make_plan(query_lens, kv_lens, page_size=PAGE_SIZE):
    num_columns = -(-max(kv_lens) // page_size)
    table = np.arange(len(kv_lens) * num_columns, dtype=np.int32).reshape(len(kv_lens), -1)
    return plan_batch(
        page_table=table[:, ::-1].copy(),
        query_lens=np.array(query_lens, dtype=np.int32),
        kv_lens=np.array(kv_lens, dtype=np.int32),
        samples=np.ones(len(kv_lens), dtype=np.bool_),
        page_size=page_size,
    )


@pytest.fixture
def fakes():
    return Fakes()


@pytest.fixture
def model(paged_models):
    return paged_models["llama"]


def make_attention(model, fakes, prefill_backend="auto"):
    kv = KVTensors(model, num_pages=32, page_size=PAGE_SIZE)
    return FlashInferAttention(model, kv, wrappers=fakes, prefill_backend=prefill_backend)


def test_flashinfer_decode_rows_are_planned_on_the_host(model, fakes):
    """Offsets, page ids and last lengths are int32, in the order the wrapper takes them."""
    plan = make_plan([1, 1, 1], [1, 8, 9])
    make_attention(model, fakes).plan(plan)
    [(name, args, options)] = fakes.named("plan")
    assert name.startswith("decode")
    indptr, indices, last_page_len, *sizes = args
    assert indptr.tolist() == [0, 1, 3, 6]
    assert indices.tolist() == [2, 5, 4, 8, 7, 6]
    assert last_page_len.tolist() == [1, 4, 1]
    assert {tensor.dtype for tensor in (indptr, indices, last_page_len)} == {torch.int32}
    assert {tensor.device.type for tensor in (indptr, last_page_len)} == {"cpu"}
    assert sizes == [4, 2, 16, PAGE_SIZE]
    assert options == {"q_data_type": torch.float32, "kv_data_type": torch.float32}


def test_flashinfer_mixed_batch_goes_through_one_prefill_call(model, fakes):
    """Decode rows are prefill rows of one token; the mask is causal."""
    attention = make_attention(model, fakes)
    plan = make_plan([5, 1, 1], [7, 3, 4])
    attention.plan(plan)
    [(name, args, options)] = fakes.named("plan")
    assert name.startswith("fa2")
    qo_indptr, kv_indptr, indices, last_page_len, *sizes = args
    assert qo_indptr.tolist() == [0, 5, 6, 7]
    assert kv_indptr.tolist() == [0, 2, 3, 4]
    assert indices.tolist() == plan.kv_indices.tolist()
    assert last_page_len.tolist() == [3, 3, 4]
    assert {tensor.dtype for tensor in args[:4]} == {torch.int32}
    assert sizes == [4, 2, 16, PAGE_SIZE]
    assert options["causal"] is True


def test_flashinfer_one_token_chunk_goes_through_decode(model, fakes):
    """A prompt's last token alone, which attends to all before it, is like a decode."""
    make_attention(model, fakes).plan(make_plan([1], [6]))
    assert fakes.named("plan")[0][0].startswith("decode")


def test_flashinfer_successive_plans_alternate_between_two_sets(model, fakes):
    """A plan waits for the copies of the plan before the last, never for those of the last."""
    attention = make_attention(model, fakes)
    for _ in range(4):
        attention.plan(make_plan([1], [6]))
    names = [name for name, *_ in fakes.named("plan")]
    assert names[0] != names[1]
    assert names[:2] == names[2:]
    steps = [fakes.log[start : start + 3] for start in range(0, 12, 3)]
    marks = []
    for step in steps:
        assert [event for event, _ in step] == ["wait", "plan", "record"]
        assert step[0][1] == step[2][1]
        marks.append(step[0][1])
    assert marks[0] != marks[1]
    assert marks[:2] == marks[2:]


def test_flashinfer_sets_of_both_kinds_share_a_mark(model, fakes):
    """Whatever the kinds of batches, the set planned last is left alone by the next plan."""
    attention = make_attention(model, fakes)
    for query_len in (1, 3, 1, 3):
        attention.plan(make_plan([query_len], [6]))
    waits = fakes.named("wait")
    assert waits[0] != waits[1]
    assert waits[:2] == waits[2:]


def test_flashinfer_run_uses_the_wrapper_planned_for_the_step(model, fakes):
    """All layers of a step go through the step's wrapper; outputs are contiguous."""
    attention = make_attention(model, fakes)
    plan = make_plan([2, 1], [2, 5])
    attention.plan(make_plan([1], [6]))
    step = attention.plan(plan)
    query = torch.randn(4, 3, 16).transpose(0, 1)
    inputs = plan_tensors(plan, model.device)
    for layer in range(2):
        output = step.run(layer, query, torch.empty(0), inputs)
        assert output.is_contiguous()
        torch.testing.assert_close(output, query)
    assert set(fakes.named("run")) == {fakes.named("plan")[-1][0]}


@pytest.mark.parametrize("kernel", ["fa2", "fa3"])
def test_flashinfer_named_prefill_kernel_takes_every_batch(model, fakes, kernel):
    """Asked for by name, the kernel serves long and short prompts alike."""
    attention = make_attention(model, fakes, kernel)
    for length in (2, 300):
        attention.plan(make_plan([length], [length]))
    assert [name.split()[0] for name, *_ in fakes.named("plan")] == [kernel, kernel]


def test_graph_decode_waits_for_its_own_copies(model, fakes):
    """One wrapper a size: its pinned buffer is written again when its last copy has run."""
    kv = KVTensors(model, num_pages=32, page_size=PAGE_SIZE)
    attention = GraphDecodeAttention(
        attention_shape(model, kv),
        2,
        wrappers=fakes,
        workspace=torch.zeros(16, dtype=torch.uint8),
        indices=torch.zeros(64, dtype=torch.int32),
    )
    for _ in range(2):
        attention.plan(make_plan([1, 1], [6, 2]))
    assert [event for event, _ in fakes.log] == ["wait", "plan", "record"] * 2
    assert len({name for name, *_ in fakes.named("plan")}) == 1


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "tensor_cores"),
    [(12, 12, False), (16, 8, False), (6, 2, False), (32, 8, True), (14, 2, True), (40, 8, True)],
)
def test_shape_decode_uses_tensor_cores_from_four_heads_a_group(
    num_heads, num_kv_heads, tensor_cores
):
    """Small groups go through the CUDA cores; 4 and more, and odd sizes, through tensor cores."""
    shape = replace(LLAMA_8B, num_heads=num_heads, num_kv_heads=num_kv_heads)
    assert shape.decode_uses_tensor_cores is tensor_cores


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"head_dim": 64}, None),
        ({"head_dim": 96}, "heads of width 64 and 128"),
        ({"dtype": torch.float32}, "supports bfloat16, but the model is float32"),
        ({"device": torch.device("cpu")}, "needs a CUDA device"),
    ],
)
def test_flashinfer_problem_names_what_is_not_served(monkeypatch, changes, reason):
    """bf16 heads of 64 or 128 on a CUDA device are served; anything else is named."""
    monkeypatch.setattr("realrun.attention.flashinfer_library._import_problem", lambda: None)
    problem = flashinfer_problem(replace(LLAMA_8B, **changes))
    assert (problem is None) if reason is None else (problem is not None and reason in problem)


def test_flashinfer_that_cannot_be_imported_is_said_once(monkeypatch, capsys):
    """`auto` then takes the reference attention; the reason fits into one line.

    The library is asked for the norms that were measured, before it is imported.
    """
    monkeypatch.setenv("FLASHINFER_USE_CUDA_NORM", "")
    monkeypatch.delenv("FLASHINFER_USE_CUDA_NORM")

    def fail(name):
        assert os.environ["FLASHINFER_USE_CUDA_NORM"] == "1"
        raise OSError("libcudart.so.13:\n  no such file")

    monkeypatch.setattr(flashinfer_library, "find_spec", lambda name: object())
    monkeypatch.setattr(flashinfer_library, "import_module", fail)
    flashinfer_library._import_problem.cache_clear()
    for _ in range(2):
        problem = flashinfer_problem(LLAMA_8B)
        assert problem == "cannot be imported: OSError: libcudart.so.13: no such file"
    assert capsys.readouterr().err.count(f"FlashInfer {problem}") == 1
    flashinfer_library._import_problem.cache_clear()


def test_flashinfer_wrappers_refuse_in_one_line(model):
    """Asking for FlashInfer where it cannot run is bad input, found before the library loads."""
    kv = KVTensors(model, num_pages=4, page_size=PAGE_SIZE)
    with pytest.raises(InputError, match="attention flashinfer: needs a CUDA device"):
        FlashInferWrappers(attention_shape(model, kv))


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "num_bytes"),
    [
        # Partial results of FlashInfer's largest plan on 132 SMs: heads x blocks x 128 x dim x 4.
        (32, 8, 128, 32 * 33 * 128 * 129 * 4),
        (64, 8, 128, 64 * 33 * 128 * 129 * 4),
        (14, 2, 64, 14 * 132 * 128 * 65 * 4),
        (12, 12, 64, 12 * 22 * 128 * 65 * 4),
    ],
)
def test_workspace_holds_the_largest_eager_plan(num_heads, num_kv_heads, head_dim, num_bytes):
    """Never less than what a plan may ask for, nor than the size the library recommends."""
    shape = replace(LLAMA_8B, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    size = workspace_bytes(shape, num_sms=132)
    assert size >= max(num_bytes, 128 * MIB)
    assert size < num_bytes + 130 * MIB


@pytest.mark.parametrize(("group", "tile"), [(4, 16), (8, 16), (32, 64)])
def test_workspace_holds_the_largest_graph_plan(group, tile):
    """A graph of n rows has ceil(n x group / tile) + n - 1 tiles, whatever their contexts."""
    shape = replace(LLAMA_8B, num_heads=8 * group)
    num_tiles = -(-512 * group // tile) + 511
    size = workspace_bytes(shape, num_sms=132, num_graph_rows=512)
    assert size >= shape.num_heads * num_tiles * tile * 129 * 4
