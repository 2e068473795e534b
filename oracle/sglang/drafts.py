"""Gives the harness's server speculative decoding; needs SGLang's environment.

SGLang's own classes allocate KV for drafts, retract, settle accepted tokens and cache them. A draw
stands in for the draft model and for verifying: it says how many drafts of each row are accepted,
by the request and the place in its output (`draws.py`, as `sim/engine/acceptance.py`).
"""

from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from oracle.draws import num_accepted

# The harness's rows have room for 64 tokens behind the longest request.
_MORE_ROOM = 512


def server_flags(config: dict[str, Any]) -> dict[str, Any]:
    """SGLang's settings of a case with drafts."""
    drafts = config.get("speculation")
    if drafts is None:
        return {}
    return {
        "speculative_algorithm": drafts["algorithm"],
        "speculative_num_steps": drafts["num_steps"],
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": drafts["num_draft_tokens"],
    }


def use_drafts(harness: ModuleType, config: dict[str, Any]) -> None:
    """Make `build_scheduler` of the harness build a server with speculative decoding."""
    from sglang.srt.mem_cache import allocation, cache_init_params, memory_pool
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    algorithm = SpeculativeAlgorithm.from_string(config["speculation"]["algorithm"])
    build = harness.build_scheduler
    parameters, rows = cache_init_params.CacheInitParams, memory_pool.ReqToTokenPool

    def parameters_with_drafts(**given: Any) -> Any:
        return parameters(**given, is_eagle=algorithm.is_eagle())

    def wider_rows(*, max_context_len: int, **given: Any) -> Any:
        return rows(max_context_len=max_context_len + _MORE_ROOM, **given)

    def build_with_drafts(settings: dict[str, Any]) -> Any:
        with (
            patch.object(cache_init_params, "CacheInitParams", parameters_with_drafts),
            patch.object(memory_pool, "ReqToTokenPool", wider_rows),
        ):
            scheduler = build(settings)
        scheduler.spec_algorithm = algorithm
        scheduler.future_map = SimpleNamespace(stash_bonus_tokens=lambda *_: None)
        scheduler.model_worker.on_verify_complete_cpu = lambda *_, **__: None
        return scheduler

    harness.build_scheduler = build_with_drafts
    allocation.assign_req_to_token_pool_func = _write_rows


def _write_rows(
    indices: Any, table: Any, starts: Any, ends: Any, locations: Any, num_rows: int
) -> None:
    """Stands in for a kernel: row by row, the new places go behind the old ones."""
    done = 0
    for row in range(num_rows):
        start, end = int(starts[row]), int(ends[row])
        table[int(indices[row]), start:end] = locations[done : done + end - start].to(table.dtype)
        done += end - start


def drafts_oracle(driver: type) -> type:
    """The driver of `live`, for cases with `speculation`."""
    return type("DraftsOracle", (DraftSteps, driver), {})


class DraftSteps:
    """Steps with drafts, for the harness's driver."""

    @property
    def num_drafts(self) -> int:
        return int(self.cfg["speculation"]["num_draft_tokens"]) - 1

    def launch(self, batch: Any) -> Any:
        """As the harness does; a decode step verifies drafts."""
        if batch.forward_mode.is_decode():
            return self._verify(batch)
        tails = set(map(id, batch.decoding_reqs or []))
        lengths = batch.seq_lens_cpu
        places = [
            int(length) - self.info[request.rid]["prompt"]
            if id(request) not in tails
            else self._place(request)
            for request, length in zip(batch.reqs, lengths.tolist(), strict=True)
        ]
        # The harness samples by a row's length; that of a decode row lags behind under overlap.
        batch.seq_lens_cpu = lengths.new_tensor(
            [
                self.info[r.rid]["prompt"] + place
                for r, place in zip(batch.reqs, places, strict=True)
            ]
        )
        result = super().launch(batch)
        batch.seq_lens_cpu = lengths
        return result

    def _verify(self, batch: Any) -> Any:
        import torch
        from sglang.srt.managers.utils import GenerationBatchResult

        self.s.forward_ct += 1
        batch.forward_iter = self.s.forward_ct
        if batch.extend_num_tokens:
            self.s.processed_tokens_counter += batch.extend_num_tokens
        batch.input_ids = None
        width = 1 + self.num_drafts
        tokens, counts = [], []
        for request in batch.reqs:
            run = self._accepted(request)
            counts.append(len(run))
            tokens += run + [0] * (width - len(run))
        lengths = [
            self.info[r.rid]["prompt"] + self._place(r) - 1 + count
            for r, count in zip(batch.reqs, counts, strict=True)
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
        for batch, result in self.s.result_queue:
            if request in batch.reqs:
                number = batch.reqs.index(request)
                place += 1 if result.accept_lens is None else int(result.accept_lens[number])
        return place

    def _accepted(self, request: Any) -> list[int]:
        """The tokens that a verify step gives a row: accepted drafts, and one more."""
        info, place = self.info[request.rid], self._place(request)
        count = 1 + num_accepted(self.cfg, info["output_seed"], place, self.num_drafts)
        if not request.sampling_params.ignore_eos:
            # After the end token nothing is accepted.
            count = max(min(count, info["output_len"] - place), 1)
        return [self.next_token(request, info["prompt"] + place + i) for i in range(count)]

    def describe(self, batch: Any, t0: float, queue_before: int) -> tuple[dict[str, Any], float]:
        """Contexts are as far as they are known when a step is decided."""
        lengths, mode = batch.seq_lens_cpu, batch.forward_mode
        decoding = list(batch.reqs) if mode.is_decode() else list(batch.decoding_reqs or [])
        more = 1 + self.num_drafts if mode.is_decode() else 1
        if decoding:
            known = [request.kv.kv_committed_len + more for request in decoding]
            kept = [] if mode.is_decode() else lengths.tolist()[: -len(decoding)]
            batch.seq_lens_cpu = lengths.new_tensor(kept + known)
        row, end_s = super().describe(batch, t0, queue_before)
        batch.seq_lens_cpu = lengths
        row["drafts"] = [more - 1] * len(decoding)
        return row, end_s
