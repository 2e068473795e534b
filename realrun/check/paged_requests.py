"""Requests by name, computed step by step over pages in no order at all."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from realrun.batch_plan import BatchPlan, plan_batch
from realrun.kv_tensors import KVTensors
from realrun.runner import ModelRunner
from sim.core.errors import InvariantError

_SHUFFLE_SEED = 5


class PagedRequests:
    """Requests over a runner's pages. Each step says how many tokens of which it computes.

    Attributes:
        page_size: tokens of a page.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.page_size = runner.kv.page_size
        shuffled = np.random.default_rng(_SHUFFLE_SEED).permutation(runner.kv.num_pages)
        self._free: list[int] = shuffled.tolist()
        self._tokens: dict[str, list[int]] = {}
        self._pages: dict[str, list[int]] = {}
        self._num_computed: dict[str, int] = {}
        forget(runner.kv)

    def add(self, rid: str, tokens: Sequence[int]) -> None:
        """A request of which nothing is computed yet."""
        self._tokens[rid] = list(tokens)
        self._pages[rid] = []
        self._num_computed[rid] = 0

    def add_sharing(self, rid: str, tokens: Sequence[int], donor: str) -> int:
        """A request that reads the whole pages of what it and another one begin with.

        Returns:
            The tokens it need not compute, at least one fewer than it has.
        """
        self.add(rid, tokens)
        theirs = self._tokens[donor][: self._num_computed[donor]]
        num_same = 0
        while num_same < min(len(theirs), len(tokens) - 1) and theirs[num_same] == tokens[num_same]:
            num_same += 1
        num_pages = num_same // self.page_size
        self._pages[rid] = self._pages[donor][:num_pages]
        self._num_computed[rid] = num_pages * self.page_size
        return self._num_computed[rid]

    def extend(self, rid: str, token: int) -> None:
        """One more token to compute."""
        self._tokens[rid].append(token)

    def num_left(self, rid: str) -> int:
        """Tokens of a request that are not computed yet."""
        return len(self._tokens[rid]) - self._num_computed[rid]

    def finish(self, rids: Sequence[str], unsampled: Collection[str] = ()) -> dict[str, Tensor]:
        """A step that computes all that is left of some requests."""
        return self.step({rid: self.num_left(rid) for rid in rids}, unsampled)

    @torch.inference_mode()
    def step(self, counts: Mapping[str, int], unsampled: Collection[str] = ()) -> dict[str, Tensor]:
        """Compute so many more tokens of each request, in one batch.

        Args:
            counts: tokens by request, at least 1 each, in batch order.
            unsampled: requests that do not sample.

        Returns:
            Logits [vocab_size] of each request that samples.
        """
        plan = self._plan(counts, unsampled)
        token_ids: list[int] = []
        for rid, count in counts.items():
            start = self._num_computed[rid]
            token_ids += self._tokens[rid][start : start + count]
            self._num_computed[rid] += count
        prepared = self._runner.prepare(plan)
        device = self._runner.model.device
        logits = self._runner.forward(prepared, torch.tensor(token_ids, device=device))
        sampling = [rid for rid in counts if rid not in unsampled]
        # A copy: the next replay of a graph overwrites its logits.
        return dict(zip(sampling, logits.clone(), strict=True))

    def _plan(self, counts: Mapping[str, int], unsampled: Collection[str]) -> BatchPlan:
        kv_lens = [self._num_computed[rid] + count for rid, count in counts.items()]
        for rid, length in zip(counts, kv_lens, strict=True):
            self._make_room(rid, length)
        table = np.zeros((len(counts), max(len(self._pages[rid]) for rid in counts)), np.int32)
        for row, rid in enumerate(counts):
            table[row, : len(self._pages[rid])] = self._pages[rid]
        return plan_batch(
            page_table=table,
            query_lens=np.array(list(counts.values()), dtype=np.int32),
            kv_lens=np.array(kv_lens, dtype=np.int32),
            samples=np.array([rid not in unsampled for rid in counts]),
            page_size=self.page_size,
        )

    def _make_room(self, rid: str, num_tokens: int) -> None:
        while len(self._pages[rid]) * self.page_size < num_tokens:
            if not self._free:
                raise InvariantError("a check needs more pages than it was given")
            self._pages[rid].append(self._free.pop())


def forget(kv: KVTensors) -> None:
    """Fill all pages with NaN: attending to what no step has written shows in every logit."""
    for layer in kv.layers:
        layer.fill_(float("nan"))
