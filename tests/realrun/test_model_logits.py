"""Paged logits are those of plain transformers, however tokens are cut into steps and pages."""

import numpy as np
import pytest
import torch

from realrun.model.paged_model import load_model

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gpt2")
PAGE_SIZES = (1, 16, 128)

every_model = pytest.mark.parametrize("architecture", ARCHITECTURES)
every_page_size = pytest.mark.parametrize("page_size", PAGE_SIZES)


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(0, 97, length).tolist()


@pytest.fixture
def server(architecture, page_size, paged_models, paged_requests):
    """Requests on scrambled pages, of one architecture and page size."""
    return paged_requests(paged_models[architecture], page_size)


@pytest.fixture
def same(architecture, plain_logits):
    """Whether a row's logits are those of plain transformers after its last token."""

    def compare(logits, tokens):
        torch.testing.assert_close(logits, plain_logits(architecture, tokens)[-1])

    return compare


@every_model
@every_page_size
class TestPagedLogits:
    def test_prompts_of_different_lengths_in_one_pass(self, server, same):
        """Whole prompts laid end to end do not see each other."""
        prompts = {"a": prompt(19), "b": prompt(200, 1), "c": prompt(1, 2), "d": prompt(19, 3)}
        for rid, tokens in prompts.items():
            server.add(rid, tokens)
        logits = server.step({rid: len(tokens) for rid, tokens in prompts.items()})
        for rid, tokens in prompts.items():
            same(logits[rid], tokens)

    def test_chunks_of_one_prompt(self, server, same):
        """A prompt computed in chunks ends with the logits of the whole; only the last samples."""
        tokens = prompt(150)
        server.add("a", tokens)
        for chunk in (7, 16, 1, 100):
            assert server.step({"a": chunk}, silent=["a"]) == {}
        same(server.step({"a": 26})["a"], tokens)

    def test_decode_steps(self, server, same):
        """Token by token over prompts of different lengths, across page boundaries."""
        prompts = {"a": prompt(31), "b": prompt(125, 1), "c": prompt(3, 2)}
        for rid, tokens in prompts.items():
            server.add(rid, tokens)
        server.step({rid: len(tokens) - 5 for rid, tokens in prompts.items() if rid != "c"})
        for left in range(4, -1, -1):
            rows = {rid: 1 for rid in prompts if rid != "c" or left < 3}
            logits = server.step(rows)
            for rid in rows:
                same(logits[rid], prompts[rid][: len(prompts[rid]) - left])

    def test_mixed_batches(self, server, same):
        """A chunk over a cached prefix, a new prompt and decode rows in one pass."""
        prompts = {"a": prompt(60), "b": prompt(40, 1), "c": prompt(33, 2), "d": prompt(18, 3)}
        for rid, tokens in prompts.items():
            server.add(rid, tokens)
        server.step({"a": 30, "c": 32, "d": 17}, silent=["a"])
        logits = server.step({"a": 20, "b": 40, "c": 1, "d": 1}, silent=["a"])
        assert list(logits) == ["b", "c", "d"]
        for rid in logits:
            same(logits[rid], prompts[rid])
        same(server.step({"a": 10})["a"], prompts["a"])

    def test_pages_shared_by_two_requests(self, server, same, page_size):
        """A request that starts on another's pages continues as if it had computed them."""
        num_shared = -(-33 // page_size)
        shared = prompt(num_shared * page_size)
        first, second = shared + prompt(9, 1), shared + prompt(20, 2)
        server.add("a", first)
        same(server.step({"a": len(first)})["a"], first)
        server.add("b", second, shared=("a", num_shared))
        same(server.step({"b": 20})["b"], second)
        server.add("c", first, shared=("a", num_shared))
        same(server.step({"c": 9})["c"], first)


@every_model
def test_sizes_of_the_model_are_those_its_shape_says(architecture, paged_models):
    """Simulator and runner count the same parameters."""
    paged = paged_models[architecture]
    num_parameters = sum(weight.numel() for weight in paged.model.parameters())
    assert num_parameters == paged.shape.num_parameters
    assert paged.max_positions == 512
    assert paged.shape.vocab_size == 97
    assert paged.shape.dtype_bytes == 4


@every_model
def test_random_weights_choose_tokens_by_their_context(architecture, plain_logits):
    """Neither one token for all, nor the input repeated, nor the last token alone decides."""
    tokens = prompt(300)
    chosen = plain_logits(architecture, tokens).argmax(-1).tolist()
    assert len(set(chosen)) > 20
    assert sum(new == old for new, old in zip(chosen, tokens, strict=True)) < 30
    assert len(set(zip(tokens, chosen, strict=True))) > len(set(tokens)) + 50


def test_bfloat16_stays_near_float32(config_paths, paged_models, paged_requests):
    """The same weights at lower precision give nearly the same logits."""
    coarse = load_model(str(config_paths["qwen3"]), device="cpu", dtype="bfloat16")
    both = []
    for model in (coarse, paged_models["qwen3"]):
        server = paged_requests(model, 16)
        server.add("a", prompt(40))
        server.step({"a": 39})
        both.append(server.step({"a": 1})["a"])
    assert both[0].dtype is torch.bfloat16
    torch.testing.assert_close(both[0].float(), both[1], rtol=0.05, atol=0.05)
