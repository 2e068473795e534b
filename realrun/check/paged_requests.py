"""Requests that the checks compute step by step, with pages in random order."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from realrun.batches.batch_plan import BatchPlan, plan_batch
from realrun.runner.model_runner import ModelRunner
from sim.core.errors import InvariantError

_SHUFFLE_SEED = 5


class PagedRequests:
    """Requests on a runner's pages. A step computes a given number of tokens of each request.

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
        # A step that reads a token never written gets logits of NaN.
        for layer in runner.kv.layers:
            layer.fill_(float("nan"))

    def add(self, rid: str, tokens: Sequence[int]) -> None:
        """Add a request without any computed token."""
        self._tokens[rid] = list(tokens)
        self._pages[rid] = []
        self._num_computed[rid] = 0

    def add_sharing(self, rid: str, tokens: Sequence[int], donor: str) -> int:
        """Add a request that uses the full pages of the prefix that it shares with `donor`.

        Returns:
            The number of tokens on these pages, at least one fewer than the request has.
        """
        self.add(rid, tokens)
        donor_tokens = self._tokens[donor][: self._num_computed[donor]]
        num_same = 0
        while (
            num_same < min(len(donor_tokens), len(tokens) - 1)
            and donor_tokens[num_same] == tokens[num_same]
        ):
            num_same += 1
        num_pages = num_same // self.page_size
        self._pages[rid] = self._pages[donor][:num_pages]
        self._num_computed[rid] = num_pages * self.page_size
        return self._num_computed[rid]

    def extend(self, rid: str, token: int) -> None:
        """Add a token to a request."""
        self._tokens[rid].append(token)

    def num_left(self, rid: str) -> int:
        """Tokens of a request that are not computed yet."""
        return len(self._tokens[rid]) - self._num_computed[rid]

    def finish(self, rids: Sequence[str], unsampled: Collection[str] = ()) -> dict[str, Tensor]:
        """Compute all tokens of these requests that are not computed yet, in one step."""
        return self.step({rid: self.num_left(rid) for rid in rids}, unsampled)

    @torch.inference_mode()
    def step(self, counts: Mapping[str, int], unsampled: Collection[str] = ()) -> dict[str, Tensor]:
        """Compute further tokens of some requests, in one batch.

        Args:
            counts: number of tokens for each request, at least 1, in batch order.
            unsampled: requests without a sampled token.

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
        # A copy, because the next replay of a graph overwrites its logits.
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
            samples=np.array([int(rid not in unsampled) for rid in counts]),
            page_size=self.page_size,
        )

    def _make_room(self, rid: str, num_tokens: int) -> None:
        while len(self._pages[rid]) * self.page_size < num_tokens:
            if not self._free:
                raise InvariantError("a check needs more pages than it has")
            self._pages[rid].append(self._free.pop())
