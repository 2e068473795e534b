"""An installed vLLM that decides in place of the rules here (docs/how-to/engine.md)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sim.installed.environment import engine_in
from sim.user.objects import FailAt
from sim.vllm.config import VllmConfig


def with_engine(
    folder: str | None,
    config: VllmConfig,
    base_dir: Path,
    fail_at: FailAt,
    refused: Sequence[str],
) -> VllmConfig:
    """The settings of a server whose steps the engine in `folder` decides; None: there is none.

    `refused`: the given keys that no engine is asked about.

    Raises InputError: there is no engine, or it is not asked about such servers.
    """
    if folder is None:
        return config
    return replace(config, engine=engine_in("vllm", base_dir / folder, fail_at, refused))
