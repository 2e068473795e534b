"""What a config.json says: values, each checked when it is read, and number formats.

The formats of a checkpoint's weights and KV cache are in its `quantization_config`.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Any, Protocol

from sim.core.errors import InputError, unknown_name
from sim.latency.hardware import (
    BFLOAT16,
    FP8,
    MXFP4,
    MXFP8,
    NVFP4,
    NumberFormat,
    fp8_blocks,
    integers,
)

Config = Mapping[str, object]


class ConfigValues:
    """A config.json, or the part of it that describes the text model.

    Attributes:
        where: how errors begin: the file, or the model's name.
    """

    def __init__(self, config: Config, where: str) -> None:
        self._outer = config
        inner = config.get("text_config")
        self.text: Config = inner if isinstance(inner, dict) else config
        self.where = where

    @property
    def model_type(self) -> str:
        return str(self.text.get("model_type", self._outer.get("model_type")))

    def error(self, key: str, reason: str) -> InputError:
        return InputError(f"{self.where}: {key}: {reason}")

    def value(self, key: str) -> Any:
        """The value of the text model or else of the whole model; None if the key is absent."""
        value = self.text.get(key)
        return self._outer.get(key) if value is None else value

    def count(self, *keys: str, default: int | None = None) -> int:
        """A positive integer under the first of the keys that is there; else `default`."""
        key = next((key for key in keys if self.value(key) is not None), keys[0])
        value = self.value(key)
        if value is None:
            value = default
        if value is None:
            raise self.error(key, "missing")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(key, f"must be a positive whole number, got {value!r}")
        return value

    def number(self, key: str) -> int:
        """An integer of at least 0; 0 if the key is absent."""
        return 0 if self.value(key) in (None, 0) else self.count(key)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, got {value!r}")
        return value

    def names(self, key: str, num_layers: int) -> list[str] | None:
        """A word for each layer; None if the key is absent."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.error(key, "must be a list of words")
        if len(value) != num_layers:
            raise self.error(key, f"has {len(value)} words for {num_layers} layers")
        return value


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
_LONGEST_REGEX = 1000
# Models of text and images call their layers differently.
_PREFIX = re.compile(r"^(model\.language_model\.|language_model\.model\.|backbone\.)")


def with_quantization(config: Config, beside: Config) -> Config:
    """A configuration with what modelopt wrote into the file hf_quant_config.json beside it."""
    return config if config.get(_KEY) else {**config, _KEY: beside.get("quantization")}


class WeightFormats:
    """How each matrix of a checkpoint is stored, by its config.json; errors begin with `where`."""

    def __init__(self, config: Config, where: str) -> None:
        self._where = where
        inner = config.get("text_config")
        settings = config.get(_KEY) or (inner.get(_KEY) if isinstance(inner, dict) else None) or {}
        self._settings = self._mapping("", settings)
        self._spared = _Modules(())
        self._by_module: dict[str, NumberFormat] = {}
        self._quantised = self._read() if settings else BFLOAT16
        self.kv_element_bytes = 1 if _has_short_kv(self._settings) else 2

    def of(self, module: str) -> NumberFormat:
        """The format of a matrix, by its name in the checkpoint, as `model.layers.0.mlp.gate`."""
        if self._quantised is BFLOAT16 and not self._by_module:
            return BFLOAT16
        # Output heads and routers are quantised nowhere.
        if module == "lm_head" or module.endswith(".gate") or self._spared.has(module):
            return BFLOAT16
        return next(
            (self._by_module[part] for part in _prefixes(module) if part in self._by_module),
            self._quantised,
        )

    def _read(self) -> NumberFormat:
        settings = self._settings
        for key in _SPARED:
            if settings.get(key):
                self._spared = self._modules(key, settings[key])
        algorithm = settings.get("quant_algo")
        if algorithm == _MIXED:
            key = "quantized_layers"
            for module, entry in self._mapping(key, settings.get(key)).items():
                self._by_module[_plain(module)] = self._algorithm(
                    self._mapping(f"{key}.{module}", entry).get("quant_algo")
                )
            return BFLOAT16
        return self._method() if algorithm is None else self._algorithm(algorithm)

    def _algorithm(self, name: object) -> NumberFormat:
        found = _ALGORITHMS.get(str(name))
        if found is None:
            raise self._error("quant_algo", unknown_name("number format", str(name), _ALGORITHMS))
        return found

    def _method(self) -> NumberFormat:
        settings, method = self._settings, self._settings.get("quant_method")
        if method == "fp8":
            return self._eight_bits("weight_block_size", settings.get("weight_block_size"))
        if method == "mxfp4":
            return MXFP4
        if method in ("awq", "gptq"):
            zero_points = bool(settings.get("zero_point", not settings.get("sym", True)))
            bits, size = self._bits("bits", settings.get("bits")), settings.get("group_size")
            return integers(bits, self._group(size), zero_points=zero_points)
        if method == "compressed-tensors":
            return self._compressed()
        reason = unknown_name("quantisation", str(method), _METHODS)
        raise self._error("quant_method", reason)

    def _compressed(self) -> NumberFormat:
        """The format of compressed-tensors, which may have one group of modules."""
        key = "config_groups"
        groups = self._mapping(key, self._settings.get(key))
        if len(groups) != 1:
            raise self._error(key, f"must have one group, got {len(groups)}")
        ((name, value),) = groups.items()
        group = self._mapping(f"{key}.{name}", value)
        key = f"{key}.{name}.weights"
        weights = self._mapping(key, group.get("weights"))
        bits = self._bits(f"{key}.num_bits", weights.get("num_bits"))
        if weights.get("type") == "int":
            zero_points = not weights.get("symmetric", True)
            return integers(bits, self._group(weights.get("group_size")), zero_points=zero_points)
        if bits == 4:
            found = MXFP4 if "mxfp4" in str(self._settings.get("format")) else NVFP4
        else:
            found = self._eight_bits(f"{key}.block_structure", weights.get("block_structure"))
        is_of_weights_alone = group.get("input_activations") is None
        return found._replace(arithmetic="bf16") if is_of_weights_alone else found

    def _eight_bits(self, key: str, block: object) -> NumberFormat:
        if not block:
            return FP8
        match block:
            case [int(rows), int(columns)] if rows > 0 and columns > 0:
                return fp8_blocks(rows * columns)
        raise self._error(key, f"must be two positive whole numbers, got {block!r}")

    def _bits(self, key: str, bits: object) -> int:
        if bits not in (2, 3, 4, 8):
            raise self._error(key, f"must be 2, 3, 4 or 8, got {bits!r}")
        return int(str(bits))

    def _group(self, size: object) -> int | None:
        if size in (None, -1):
            return None
        if not isinstance(size, int) or size < 1:
            raise self._error("group_size", f"must be a positive whole number, got {size!r}")
        return size

    def _modules(self, key: str, names: object) -> "_Modules":
        if not isinstance(names, list):
            raise self._error(key, "must be a list of names")
        try:
            return _Modules(str(name) for name in names)
        except ValueError as error:
            raise self._error(key, str(error)) from None

    def _mapping(self, key: str, value: object) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._error(key, "must be a mapping")
        return value

    def _error(self, key: str, reason: str) -> InputError:
        return InputError(f"{self._where}: {'.'.join(filter(None, (_KEY, key)))}: {reason}")


class Pattern(Protocol):
    """A compiled pattern."""

    def match(self, text: str, /) -> object | None:
        """What matches from the beginning of the text on; None: nothing does."""


class _Modules:
    """Modules by name (with all that is in them), by a pattern with *, or by `re:` and a regex."""

    def __init__(self, names: Iterable[str]) -> None:
        """Raises ValueError for a regular expression that is none, or that RE2 does not take."""
        self._names: set[str] = set()
        self._patterns: list[Pattern] = []
        for name in names:
            if name.startswith(_REGEX):
                self._patterns.append(_compiled(name.removeprefix(_REGEX)))
            elif "*" in name:
                plain = _plain(name)
                self._patterns += [re.compile(translate(each)) for each in (plain, f"{plain}.*")]
            else:
                self._names.add(_plain(name))

    def has(self, module: str) -> bool:
        named = any(part in self._names for part in (*_prefixes(module), *module.split(".")))
        return named or any(pattern.match(module) is not None for pattern in self._patterns)


def _compiled(expression: str) -> Pattern:
    """A regular expression of a file. RE2 matches it in linear time, whatever it is.

    `re` would take time that doubles with each character for expressions such as `(.*)*(.*)*y`.
    """
    import re2

    if len(expression) > _LONGEST_REGEX:
        raise ValueError(f"a regular expression of more than {_LONGEST_REGEX} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        pattern: Pattern = re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise ValueError(f"not a regular expression that RE2 takes: {reason}") from None
    return pattern


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
