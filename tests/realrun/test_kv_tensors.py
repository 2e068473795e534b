"""KV tensors: their layout, how many pages fit, and the error if none fits."""

import pytest
import torch

from realrun.device.memory import GIB, find_device, pool_bytes
from realrun.model.kv_tensors import KVTensors, num_pages_that_fit, page_bytes
from sim.core.errors import InputError


@pytest.fixture
def model(paged_models):
    """Two layers, two KV heads of 16, float32: 512 bytes a token."""
    return paged_models["llama"]


def test_layers_have_a_scratch_page_after_the_pages(model):
    """Shape, type and the scratch page's id."""
    kv = KVTensors(model, num_pages=7, page_size=16)
    assert [tuple(layer.shape) for layer in kv.layers] == [(8, 2, 16, 2, 16)] * 2
    assert kv.scratch_page == 7
    assert all(layer.dtype is torch.float32 and not layer.any() for layer in kv.layers)


def test_page_bytes_agree_with_the_simulator(model):
    """A page is as large as the tokens the simulator counts."""
    assert page_bytes(model, 16) == 16 * model.shape.kv_bytes_per_token == 16 * 512


@pytest.mark.parametrize("page_size", [0, 129, 256])
def test_page_sizes_out_of_range_are_refused(model, page_size):
    """Both by the tensors and by the count of pages."""
    with pytest.raises(InputError, match=f"page_size {page_size}: the runner takes 1 to 128"):
        KVTensors(model, num_pages=1, page_size=page_size)
    with pytest.raises(InputError, match=f"page_size {page_size}"):
        num_pages_that_fit(model, page_size, 0.9)


def test_pool_larger_than_memory_is_refused_with_figures(model):
    """2^40 tokens of 512 bytes: 524288 GiB."""
    with pytest.raises(
        InputError, match=r"^max_total_tokens 1099511627776: .* 524288\.00 GiB, cpu"
    ):
        KVTensors(model, num_pages=2**36, page_size=16)


def test_pool_the_device_cannot_allocate_is_refused(model, monkeypatch):
    """Free memory in pieces: torch says no although the sum would do."""

    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch, "zeros", full)
    with pytest.raises(InputError, match=r"^max_total_tokens 64: "):
        KVTensors(model, num_pages=4, page_size=16)


def test_pages_that_fit_on_a_cpu_are_bounded(model):
    """4 GiB at most, however large the machine; the scratch page is not among them."""
    num_pages = num_pages_that_fit(model, 16, 0.9)
    assert 0 < num_pages < 4 * GIB // page_bytes(model, 16)


def test_no_room_for_a_page_is_refused(model):
    """A share of nothing."""
    with pytest.raises(InputError, match=r"^mem_fraction_static 0\.0: leaves 0\.00 GiB of cpu"):
        num_pages_that_fit(model, 16, 0.0)


def test_weights_count_against_the_share_of_a_gpu(monkeypatch):
    """Of 100 GiB with 16 in use, 0.8 leaves 64; 0.1 leaves none."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (84 * GIB, 100 * GIB))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    device = torch.device("cuda", 0)
    assert pool_bytes(device, 0.8) == 64 * GIB
    assert pool_bytes(device, 0.1) == 0


@pytest.mark.parametrize("name", ["mps", "meta", "gpu", "cuda:x", ""])
def test_devices_of_other_kinds_are_refused(name):
    """One line, and what is known."""
    with pytest.raises(InputError, match=f"^device {name}: not one of cpu, cuda, cuda:N$"):
        find_device(name)


def test_cuda_without_a_gpu_is_refused(monkeypatch):
    """Says what torch sees."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InputError, match=r"^device cuda: torch finds no CUDA device$"):
        find_device("cuda")


def test_cuda_devices_are_counted(monkeypatch):
    """The second of two exists, a third does not; none named means the current one."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert find_device("cuda") == torch.device("cuda", 0)
    assert find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match=r"^device cuda:2: torch finds 2 CUDA devices"):
        find_device("cuda:2")
