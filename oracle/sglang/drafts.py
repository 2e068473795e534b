"""Steps with speculative decoding.

SGLang's own classes allocate KV for drafts, retract, settle accepted tokens and cache them. A draw
stands in for the draft model and for verifying: it says how many drafts of each row are accepted,
by the request and the place in its output (`oracle/draws.py`, as `sim/engine/acceptance.py`).
"""

from typing import Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.mem_cache import allocation

from oracle.draws import num_accepted
from oracle.sglang.model import Model
from sim.installed.inside.sglang.settings import Config


class DraftModel(Model):
    """A decode step verifies drafts, and gives each row one token and what is accepted."""

    def __init__(self, config: Config, server: Any, infos: dict[str, Any]) -> None:
        super().__init__(config, server, infos)
        self.num_drafts = int(config["speculation"]["num_draft_tokens"]) - 1
        allocation.assign_req_to_token_pool_func = _write_rows

    def forward(self, batch: Any) -> Any:
        if batch.forward_mode.is_decode():
            return self._verify(batch)
        # Under overlap the length of a decoding row of a mixed step lags behind.
        decoding = set(map(id, batch.decoding_reqs or []))
        lengths = [
            self.infos[request.rid]["prompt"] + self._place(request)
            if id(request) in decoding
            else length
            for request, length in zip(batch.reqs, batch.seq_lens_cpu.tolist(), strict=True)
        ]
        return self._one_each(batch, lengths)

    def _verify(self, batch: Any) -> Any:
        width = 1 + self.num_drafts
        tokens, counts = [], []
        for request in batch.reqs:
            run = self._accepted(request)
            counts.append(len(run))
            tokens += run + [0] * (width - len(run))
        lengths = [
            self.infos[request.rid]["prompt"] + self._place(request) - 1 + count
            for request, count in zip(batch.reqs, counts, strict=True)
        ]
        batch.seq_lens = batch.seq_lens_cpu = torch.tensor(lengths, dtype=torch.int64)
        return GenerationBatchResult(
            next_token_ids=torch.tensor(tokens, dtype=torch.int64),
            accept_lens=torch.tensor(counts, dtype=torch.int64),
            speculative_num_draft_tokens=width,
        )

    def _place(self, request: Any) -> int:
        """Output tokens that a row has when its step runs, those of the step before included."""
        place = len(request.output_ids)
        for batch, result in self.server.result_queue:
            if request in batch.reqs:
                number = batch.reqs.index(request)
                place += 1 if result.accept_lens is None else int(result.accept_lens[number])
        return place

    def _accepted(self, request: Any) -> list[int]:
        """The tokens that a verify step gives a row: accepted drafts, and one more."""
        info, place = self.infos[request.rid], self._place(request)
        count = 1 + num_accepted(self.config, info["output_seed"], place, self.num_drafts)
        if not request.sampling_params.ignore_eos:
            # After the end token nothing is accepted.
            count = max(min(count, info["output_len"] - place), 1)
        return [self.sample(request, info["prompt"] + place + i) for i in range(count)]

    def known_lengths(self, batch: Any) -> list[int]:
        lengths = super().known_lengths(batch)
        is_decode = batch.forward_mode.is_decode()
        decoding = list(batch.reqs) if is_decode else list(batch.decoding_reqs or [])
        more = 1 + self.num_drafts if is_decode else 1
        known = [int(request.kv.kv_committed_len) + more for request in decoding]
        return lengths[: len(lengths) - len(decoding)] + known

    def drafts_of(self, batch: Any, decoding: list[Any]) -> dict[str, Any]:
        """For each decoding row, how many drafts the step verifies: none in a mixed step."""
        each = self.num_drafts if batch.forward_mode.is_decode() else 0
        return {"drafts": [each] * len(decoding)}


def _write_rows(
    indices: Any, table: Any, starts: Any, ends: Any, locations: Any, num_rows: int
) -> None:
    """Stands in for a kernel: row by row, the new places go behind the old ones."""
    done = 0
    for row in range(num_rows):
        start, end = int(starts[row]), int(ends[row])
        table[int(indices[row]), start:end] = locations[done : done + end - start].to(table.dtype)
        done += end - start
