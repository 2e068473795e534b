"""Puts an engine and its executor together on a warm runner."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import cast

from realrun.model.paged_model import PagedModel
from realrun.runner.warm_runner import WarmRunner
from realrun.server.executor import TorchExecutor
from realrun.server.host_copies import HostCopies
from realrun.tokens.drafting import NgramDrafting
from realrun.tokens.outputs import Tokens
from realrun.tokens.sampling import SamplingParams
from sim.engine.core import EngineCore
from sim.engine.page_pool import PageIds
from sim.engine.server_config import ServerConfig, goes_row_by_row
from sim.families import build_engine
from sim.vllm.config import with_copies_in_stream
from sim.vllm.offload.connector import OffloadConnector
from sim.vllm.pulling import Polling


def assemble(
    warm: WarmRunner,
    config: ServerConfig,
    tokens: Tokens,
    sampling_params: Mapping[str, SamplingParams] = MappingProxyType({}),
) -> tuple[EngineCore, TorchExecutor]:
    """A fresh engine, and its executor on a warm runner.

    Args:
        warm: the runner.
        config: the scheduler's settings.
        tokens: the tokens of all requests.
        sampling_params: see `TorchExecutor`.
    """
    offload = getattr(config, "offload", None)
    config = with_copies_in_stream(config)
    speculation = getattr(config, "speculation", None)
    drafting = NgramDrafting(speculation, tokens) if goes_row_by_row(config) else None
    executor = TorchExecutor(warm.runner, warm.stream, tokens, drafting, sampling_params)
    pool = PageIds(config.pool_tokens // config.page_size, config.page_size)
    engine = build_engine(config, pool=pool, executor=executor)
    # Under overlap a request keeps its slot until its last result is processed, so slots of ended
    # and new requests are in use at the same time.
    executor.attach(engine, 2 * config.max_rows + 2)
    if offload is not None and isinstance(engine.role, Polling) and engine.role.offload is not None:
        host = cast("OffloadConnector", engine.role.offload.connector).host
        copies = HostCopies(warm.runner.kv, warm.stream, host, offload.blocks_per_chunk)
        engine.role.offload.copies.made_by(copies.make)
        executor.take_copies = copies.take_made
    return engine, executor


@contextmanager
def quiet_memory(warm: WarmRunner) -> Iterator[None]:
    """While a run serves, the garbage collector does not scan what existed before."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        warm.stream.synchronise()
        gc.unfreeze()


def end_ids(model: PagedModel) -> frozenset[int]:
    """The tokens that end an output, of both configurations of the model."""
    found: set[int] = set()
    for config in (model.model.config, model.model.generation_config):
        ends = getattr(config, "eos_token_id", None)
        found.update(ends if isinstance(ends, list) else () if ends is None else (ends,))
    return frozenset(found)
