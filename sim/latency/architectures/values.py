"""The values of a config.json, each checked when it is read."""

from collections.abc import Mapping
from typing import Any

from sim.core.errors import InputError

Config = Mapping[str, object]


class ConfigValues:
    """A config.json, or the part of it that describes the text model.

    Attributes:
        text: the keys of the text model.
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
        """An integer that may be 0, as it is if the key is absent."""
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
