"""What a scenario deploys, as aiconfigurator-core is asked about it, and why it has no times."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sim.core.errors import InputError, one_line, unknown_name
from sim.latency.architectures.config_json import Config, ConfigValues, WeightFormats
from sim.latency.architectures.model_key import (
    FoundModel,
    bundled_config,
    bundled_models,
    find_model,
)
from sim.latency.architectures.read import is_described
from sim.latency.config import AiconfiguratorLatencyConfig, Parallelism, parallelism

# The class of transformers that a model_type means, where a configuration does not say. Those with
# the same operators as Llama are Llama for the package.
_LLAMA = "LlamaForCausalLM"
_ARCHITECTURES: Mapping[str, str] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral3": _LLAMA,
    "phi3": _LLAMA,
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "qwen3_5_text": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe_text": "Qwen3_5MoeForConditionalGeneration",
    "llama4_text": "Llama4ForConditionalGeneration",
}
# Changes no time: it limits requests, as the scheduler's own settings do.
_CONTEXT_LENGTH = 131_072


class ModelDeployment(NamedTuple):
    """A model on some GPUs.

    Attributes:
        model: a Hugging Face id that the package knows; otherwise the name for messages.
        config: the text of the model's config.json; None: the package has it.
        system: the package's name of the GPU, for instance `h200_sxm`.
        backend: `sglang`, `vllm` or `trtllm`.
        version: the backend's version; None: the newest one that was measured in full.
        quantization: number format of each kind of operator, as pairs (kind, format); a kind that
            is missing has the format of the checkpoint.
        draft_layers: layers that draft tokens of a decode step; 0: no drafts, or none that take
            time to make.
        moe_a2a_backend: `none` or `deepep`, as the key of that name.
    """

    model: str
    config: str | None
    system: str
    backend: str
    version: str | None
    parallelism: Parallelism
    quantization: tuple[tuple[str, str], ...] = ()
    draft_layers: int = 0
    moe_a2a_backend: str = "none"


def deployment_of(
    section: AiconfiguratorLatencyConfig, model: str, base_dir: Path, known: frozenset[str]
) -> ModelDeployment:
    """What a scenario's `latency` section and its `model` describe; the package knows some ids."""
    found = find_model(model, base_dir)
    named = None
    if found.path is None:
        named = next((name for name in (model, found.name) if name in known), None)
    formats = section.quantization.model_dump(exclude_none=True)
    if is_described(found.config):
        # The package would take 8 bits for every checkpoint in fp8. The engines do so only if the
        # checkpoint has scales for them.
        has_short_kv = WeightFormats(found.config, found.where).kv_element_bytes == 1
        formats.setdefault("kv_cache", "fp8" if has_short_kv else "bfloat16")
    return ModelDeployment(
        named or model,
        None if named else json.dumps(_completed(found)),
        section.system,
        section.backend,
        section.version,
        parallelism(section),
        tuple(sorted(formats.items())),
        moe_a2a_backend=section.moe_a2a_backend,
    )


def _completed(found: FoundModel) -> Config:
    """The configuration with two keys that the package needs and short ones may lack."""
    config = found.config
    if found.path is None and found.name in bundled_models():
        # All keys, where our table has a few.
        config = bundled_config(found.name)
    values = ConfigValues(config, found.where)
    architecture = _ARCHITECTURES.get(values.model_type)
    completed = {"max_position_embeddings": _CONTEXT_LENGTH, **config}
    if architecture == _LLAMA:
        # The package does not know the classes of its relatives, nor models of text and images.
        return {**completed, **values.text, "architectures": [architecture]}
    if architecture is not None:
        return {"architectures": [architecture], **completed}
    if "architectures" not in completed:
        known = ", ".join(sorted(_ARCHITECTURES))
        raise InputError(
            f"{found.where}: aiconfigurator-core has no operators of a {values.model_type} (it has"
            f" those of: {known})",
            key=("latency",),
        )
    return completed


# The widest spread that was measured has one of DeepSeek's 256 experts on each GPU.
_MOST_GPUS = 256


def spreads_around(
    parallelism: Parallelism,
) -> tuple[Iterator[Parallelism], Iterator[Parallelism]]:
    """Deployments over powers of two of GPUs: narrower ones and wider ones, the nearest first."""
    moe_ep = parallelism.moe_ep
    narrower = (1 << power for power in reversed(range(1, (moe_ep - 1).bit_length())))
    wider = (1 << power for power in range(moe_ep.bit_length(), _MOST_GPUS.bit_length()))
    return _over(parallelism, narrower), _over(parallelism, wider)


def _over(parallelism: Parallelism, sizes: Iterator[int]) -> Iterator[Parallelism]:
    for size in sizes:
        if size % parallelism.tp == 0:
            yield parallelism._replace(dp=size // parallelism.tp, moe_ep=size)


def share_of_narrow(moe_ep: int, narrow: int, wide: int) -> float:
    """How much of the narrower spread's time counts; the rest is of the wider one's.

    In every step a GPU reads the weights of its experts. So with as many tokens on each rank, the
    time of the experts is taken to be linear in their number on a GPU, that is, in 1 / moe_ep.
    """
    return (1 / moe_ep - 1 / wide) / (1 / narrow - 1 / wide)


_MAX_LENGTH = 200
_MAX_NAMES = 5
_NO_ARITHMETIC = re.compile(r"needs '(\w+)_tc_flops'")
# Where a message's first sentence goes on with names of files and of the package's own parts.
_DETAILS = re.compile(r" \((?:first|or|no misc)\b.*|: tried .*")
_PATH = re.compile(r" at /[^\s;]*")
_REPEATED = re.compile(r"^(?:perf database error: )+")


def reason_of(error: Exception, system: str) -> str:
    """The first sentence of the package's message: some are pages of table keys."""
    if isinstance(error, KeyError):
        return f"its configuration lacks {error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    lacking = _NO_ARITHMETIC.search(lines[0])
    if lacking is not None:
        return f"{system} has no arithmetic in {lacking[1]}"
    text = _REPEATED.sub("", _PATH.sub("", _DETAILS.sub("", one_line(lines[0]))))
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH].rpartition(' ')[0]} ..."


def what_there_is(deployment: ModelDeployment, matrix: Iterable[Mapping[str, str]]) -> str:
    """For a deployment without times: for what the package's table of supported ones has some."""
    num_gpus = deployment.parallelism.tp * deployment.parallelism.dp
    if num_gpus.bit_count() > 1:
        return f"messages were measured between 2, 4, 8, ... GPUs, and tp x dp is {num_gpus}"
    rows = [row for row in matrix if row["Status"] == "PASS"]
    same = [row for row in rows if row["HuggingFaceID"] == deployment.model]
    if not same and deployment.config is not None:
        classes = json.loads(deployment.config).get("architectures") or [None]
        same = [row for row in rows if row["Architecture"] == classes[0]]
    if not same:
        return f"it has none of {deployment.model} on any system"
    backend = deployment.backend
    found = {row["System"] for row in same if row["Backend"] == backend}
    if not found:
        backend = same[0]["Backend"]
        found = {row["System"] for row in same if row["Backend"] == backend}
    names = sorted(found)
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    where = ", ".join(names[:_MAX_NAMES]) + more
    return f"it has those of {deployment.model} in its own formats with {backend} on {where}"


def known_format(formats: Collection[str], kind: str, name: str) -> str:
    """The name of a number format for a kind of operator, if the package has it."""
    if name not in formats:
        reason = unknown_name("number format", name, formats)
        raise InputError(reason, key=("latency", "quantization", kind))
    return name


def known_version(perf_database: Any, system: str, backend: str, wanted_version: str | None) -> str:
    """The version to open. An error about an unknown name says which names there are."""
    versions: dict[str, str] | None = perf_database.get_version_slots(system, backend)
    if versions is None:
        supported = perf_database.get_supported_databases()
        if system not in supported:
            reason = unknown_name("system", system, supported)
            raise InputError(reason, key=("latency", "system"))
        reason = unknown_name(f"backend on {system}", backend, supported[system])
        raise InputError(reason, key=("latency", "backend"))
    if wanted_version is None:
        return versions["current"]
    if wanted_version not in versions.values():
        what = f"version of {backend} on {system}"
        reason = unknown_name(what, wanted_version, versions.values())
        raise InputError(reason, key=("latency", "version"))
    return wanted_version
