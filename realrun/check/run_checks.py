"""Runs all comparisons that are possible for a model on its device."""

from collections.abc import Iterator

from realrun.attention.choose import AttentionName, build_attention
from realrun.attention.flashinfer import FlashInferAttention
from realrun.attention.flashinfer_shape import attention_shape, flashinfer_problem
from realrun.attention.flashinfer_wrappers import PrefillKernel
from realrun.check.check_case import CheckCase, make_check_case
from realrun.check.comparison import LogitComparison
from realrun.check.comparisons import EVERYWHERE, runners_agree
from realrun.model.paged_model import PagedModel
from realrun.runner.cuda_graph import capture_decodes
from realrun.runner.model_runner import ModelRunner
from sim.core.errors import InputError

_KERNELS: tuple[PrefillKernel, ...] = ("fa2", "fa3")
_FLASHINFER = {kernel: f"flashinfer {kernel} = reference attention" for kernel in _KERNELS}
_GRAPHS = "graphs = eager"
_MAX_GRAPH_ROWS = 8


def run_checks(
    model: PagedModel, *, page_size: int, attention: AttentionName = "auto"
) -> Iterator[LogitComparison]:
    """Make every comparison. The note of one that cannot be made here says why.

    Args:
        model: a loaded model.
        page_size: tokens of a page.
        attention: backend for the comparisons that do not need a certain one.

    Raises:
        InputError: the backend does not support the model, the page size is out of range, or there
            is too little memory.
    """
    case = make_check_case(model, page_size)
    runner = _runner(case, attention)
    for compare in EVERYWHERE:
        yield compare(case, runner)
    problem = flashinfer_problem(attention_shape(model, case.kv))
    if problem is None:
        yield from _flashinfer_checks(case)
    else:
        for name in (*_FLASHINFER.values(), _GRAPHS):
            yield LogitComparison(name, None, case.tolerance, f"not made: {problem}")


def _flashinfer_checks(case: CheckCase) -> Iterator[LogitComparison]:
    """Compare FlashInfer's prefill kernels with the reference, and CUDA graphs with eager steps."""
    model, kv = case.model, case.kv
    reference = _runner(case, "reference")
    for kernel, name in _FLASHINFER.items():
        try:
            backend = FlashInferAttention(model, kv, prefill_backend=kernel)
        except InputError as error:
            yield LogitComparison(name, None, case.tolerance, f"not made: {error}")
        else:
            yield runners_agree(case, name, ModelRunner(model, kv, backend), reference)
    eager = FlashInferAttention(model, kv)
    graphs = capture_decodes(model, kv, _MAX_GRAPH_ROWS)
    replaying = ModelRunner(model, kv, eager, graphs=graphs)
    yield runners_agree(case, _GRAPHS, replaying, ModelRunner(model, kv, eager))


def _runner(case: CheckCase, attention: AttentionName) -> ModelRunner:
    backend = build_attention(attention, case.model, case.kv, case.model.device)
    return ModelRunner(case.model, case.kv, backend)
