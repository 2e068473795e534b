"""The number formats of a checkpoint's weights and KV cache, as its `quantization_config` says."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Any

from sim.core.errors import InputError
from sim.core.messages import unknown_name
from sim.latency.architectures.values import Config
from sim.latency.number_formats import (
    BFLOAT16,
    FP8,
    MXFP4,
    MXFP8,
    NVFP4,
    NumberFormat,
    fp8_blocks,
    integers,
)

_KEY = "quantization_config"
# What modelopt calls its formats. With W4A16, only the weights have four bits.
_ALGORITHMS: Mapping[str, NumberFormat] = {
    "FP8": FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8,
    "FP8_PB_WO": fp8_blocks(128 * 128),
    "MXFP8": MXFP8,
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_NVFP4": NVFP4._replace(arithmetic="bf16"),
    "W4A8_NVFP4_FP8": NVFP4._replace(arithmetic="fp8"),
    "W4A16_AWQ": integers(4, 128, zero_points=False),
}
_METHODS = ("fp8", "mxfp4", "awq", "gptq", "compressed-tensors", "modelopt", "modelopt_fp4")
_MIXED = "MIXED_PRECISION"
# Under which keys the modules stand that are not quantised.
_SPARED = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
_REGEX = "re:"
# Models of text and images call their layers differently.
_PREFIX = re.compile(r"^(model\.language_model\.|language_model\.model\.|backbone\.)")


def with_quantization(config: Config, beside: Config) -> Config:
    """A configuration with what modelopt wrote into the file hf_quant_config.json beside it."""
    return config if config.get(_KEY) else {**config, _KEY: beside.get("quantization")}


class WeightFormats:
    """How each matrix of a checkpoint is stored.

    Args:
        config: the config.json.
        where: how errors begin.
    """

    def __init__(self, config: Config, where: str) -> None:
        inner = config.get("text_config")
        settings = config.get(_KEY) or (inner.get(_KEY) if isinstance(inner, dict) else None) or {}
        self._where = where
        if not isinstance(settings, dict):
            raise self._error("", "must be a mapping")
        self._quantised = BFLOAT16
        self._by_module: dict[str, NumberFormat] = {}
        self._spared = _Modules(())
        if settings:
            self._read(settings)
        self.kv_element_bytes = 1 if _has_short_kv(settings) else 2

    def of(self, module: str) -> NumberFormat:
        """The format of a matrix, by its name in the checkpoint, as `model.layers.0.mlp.gate`."""
        if self._quantised is BFLOAT16 and not self._by_module:
            return BFLOAT16
        if module == "lm_head" or module.endswith(".gate") or self._spared.has(module):
            # Output heads and routers are quantised nowhere.
            return BFLOAT16
        return next(
            (self._by_module[part] for part in _prefixes(module) if part in self._by_module),
            self._quantised,
        )

    def _read(self, settings: Mapping[str, Any]) -> None:
        spared = [name for key in _SPARED for name in settings.get(key) or ()]
        self._spared = _Modules(str(name) for name in spared)
        algorithm = settings.get("quant_algo")
        if algorithm == _MIXED:
            listed = settings.get("quantized_layers")
            if not isinstance(listed, dict):
                raise self._error("quantized_layers", "missing")
            for module, entry in listed.items():
                self._by_module[_plain(module)] = self._algorithm(entry["quant_algo"])
        elif algorithm is not None:
            self._quantised = self._algorithm(str(algorithm))
        else:
            self._quantised = self._method(settings)

    def _algorithm(self, name: str) -> NumberFormat:
        if name not in _ALGORITHMS:
            raise self._error("quant_algo", unknown_name("number format", name, _ALGORITHMS))
        return _ALGORITHMS[name]

    def _method(self, settings: Mapping[str, Any]) -> NumberFormat:
        method = settings.get("quant_method")
        if method == "fp8":
            block = settings.get("weight_block_size")
            return FP8 if block is None else fp8_blocks(int(block[0]) * int(block[1]))
        if method == "mxfp4":
            return MXFP4
        if method in ("awq", "gptq"):
            bits, size = self._bits(settings, "bits"), settings.get("group_size")
            zero_points = bool(settings.get("zero_point", not settings.get("sym", True)))
            return integers(
                bits, None if size in (None, -1) else int(size), zero_points=zero_points
            )
        if method == "compressed-tensors":
            return self._compressed(settings)
        reason = unknown_name("quantisation", str(method), _METHODS)
        raise self._error("quant_method", reason)

    def _compressed(self, settings: Mapping[str, Any]) -> NumberFormat:
        groups = settings.get("config_groups")
        if not isinstance(groups, dict) or len(groups) != 1:
            raise self._error("config_groups", "must have one group")
        (group,) = groups.values()
        weights = group["weights"]
        bits, size = self._bits(weights, "num_bits"), weights.get("group_size")
        whole = group.get("input_activations") is None
        if weights.get("type") == "int":
            return integers(bits, size, zero_points=not weights.get("symmetric", True))
        if bits == 4:
            short = MXFP4 if "mxfp4" in str(settings.get("format")) else NVFP4
            return short._replace(arithmetic="bf16") if whole else short
        block = weights.get("block_structure")
        made = FP8 if not block else fp8_blocks(int(block[0]) * int(block[1]))
        return made._replace(arithmetic="bf16") if whole else made

    def _bits(self, settings: Mapping[str, Any], key: str) -> int:
        bits = settings.get(key)
        if bits not in (2, 3, 4, 8):
            raise self._error(key, f"must be 2, 3, 4 or 8, got {bits!r}")
        return int(bits)

    def _error(self, key: str, reason: str) -> InputError:
        return InputError(f"{self._where}: {'.'.join(filter(None, (_KEY, key)))}: {reason}")


class _Modules:
    """Modules by name (with all that is in them), by a pattern with *, or by `re:` and a regex."""

    def __init__(self, names: Iterable[str]) -> None:
        plain, patterns = set(), []
        for name in names:
            if name.startswith(_REGEX):
                patterns.append(name.removeprefix(_REGEX))
            elif "*" in name:
                patterns += [translate(_plain(name)), translate(f"{_plain(name)}.*")]
            else:
                plain.add(_plain(name))
        self._names = plain
        self._pattern = re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")

    def has(self, module: str) -> bool:
        named = any(part in self._names for part in (*_prefixes(module), *module.split(".")))
        return named or self._pattern.match(module) is not None


def _plain(module: str) -> str:
    return _PREFIX.sub("model.", module)


def _prefixes(module: str) -> list[str]:
    """A module's name, and those of the modules that it is in: the longest first."""
    words = module.split(".")
    return [".".join(words[:length]) for length in range(len(words), 0, -1)]


def _has_short_kv(settings: Mapping[str, Any]) -> bool:
    scheme = settings.get("kv_cache_scheme")
    bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
    return bits == 8 or "FP8" in (scheme, settings.get("kv_cache_quant_algo"))
