"""What a scenario deploys, as the package aiconfigurator-core is asked about it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError
from sim.core.json_object import read_json_object
from sim.core.messages import unknown_name
from sim.latency.config import AiconfiguratorLatencyConfig
from sim.latency.shape_files import Config, config_file, model_table

# The class of transformers that a model_type names, where a configuration does not say.
_ARCHITECTURES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# Changes no time: it limits requests, as the scheduler's own settings do.
_CONTEXT_LENGTH = 131_072


class Parallelism(NamedTuple):
    """Over how many GPUs each part of the model is spread; all 1: one GPU.

    Attributes:
        tp: GPUs that share the attention heads and the dense matrices of a rank.
        dp: ranks with attention and a KV cache of their own.
        moe_tp: GPUs that share each expert.
        moe_ep: groups of GPUs that each hold a part of the experts; moe_tp x moe_ep = tp x dp.
    """

    tp: int = 1
    dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1


class Deployment(NamedTuple):
    """A model on some GPUs.

    Attributes:
        model: a Hugging Face id that the package knows; otherwise the name for messages.
        config: the text of the model's config.json; None: the package has it.
        system: the package's name of the GPU, for instance `h200_sxm`.
        backend: `sglang`, `vllm` or `trtllm`.
        version: the backend's version; None: the newest one that was measured in full.
        parallelism: the GPUs.
        quantization: number format of each kind of operator, as pairs (kind, format); a kind that
            is missing has the format of the checkpoint.
    """

    model: str
    config: str | None
    system: str
    backend: str
    version: str | None
    parallelism: Parallelism
    quantization: tuple[tuple[str, str], ...] = ()


def deployment_of(
    section: AiconfiguratorLatencyConfig, model: str, base_dir: Path, known: frozenset[str]
) -> Deployment:
    """What a scenario's `latency` section and its `model` describe.

    Args:
        section: the section.
        model: a name of our table, a Hugging Face id that is `known`, or a path; see `config_file`.
        base_dir: what paths are relative to.
        known: ids whose configuration the package has.

    Raises:
        InputError: no such model.
    """
    num_gpus, moe_ep = section.tp * section.dp, section.moe_ep
    parallelism = Parallelism(section.tp, section.dp, num_gpus // moe_ep, moe_ep)
    formats = section.quantization.model_dump(exclude_none=True)
    config = None
    if model not in known:
        config = json.dumps(_completed(_config_of(model, base_dir, known)))
    return Deployment(
        model,
        config,
        section.system,
        section.backend,
        section.version,
        parallelism,
        tuple(sorted(formats.items())),
    )


def _config_of(model: str, base_dir: Path, known: frozenset[str]) -> Config:
    table = model_table()
    if model in table:
        return table[model]
    path = config_file(model, base_dir)
    if not path.exists():
        raise InputError(unknown_name("model", model, [*table, *sorted(known)]), key=("model",))
    return read_json_object(path)


def _completed(config: Config) -> Config:
    """The configuration with two keys that the package needs and short ones may lack."""
    completed = {"max_position_embeddings": _CONTEXT_LENGTH, **config}
    architecture = _ARCHITECTURES.get(str(config.get("model_type")))
    if architecture is not None:
        completed = {"architectures": [architecture], **completed}
    return completed
