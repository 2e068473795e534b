"""Settings of a server that its results do not show: the fit tries several values of each."""

from collections.abc import Mapping, Sequence
from itertools import product

from sim.core.errors import InputError
from sim.scenario.strict_yaml import YamlValue, parse_yaml_value

Settings = Mapping[str, YamlValue]

_MOST = 24
# Tokens of a prefill step: the defaults of SGLang and vLLM on small and on large GPUs.
_STEP_TOKENS = (2_048, 8_192)


def parse_tries(options: Sequence[str]) -> dict[str, list[YamlValue]]:
    """`KEY.PATH=VALUE,VALUE,...` options. Raises InputError if one has another form."""
    tries: dict[str, list[YamlValue]] = {}
    for option in options:
        key, equals, text = option.partition("=")
        label = f"--try {option}"
        if not equals or not key.strip() or not text.strip():
            raise InputError(f"{label}: must have the form key.path=value,value,...")
        values = [parse_yaml_value(value, label) for value in text.split(",")]
        if len(values) < 2:
            raise InputError(f"{label}: needs two values or more; --set sets one")
        tries[key.strip()] = values
    return tries


def default_tries(step_tokens_key: str, own: YamlValue) -> dict[str, list[YamlValue]]:
    """What is tried without `--try`: the tokens of a prefill step, with its default first."""
    return {f"scheduler.{step_tokens_key}": [own, *(each for each in _STEP_TOKENS if each != own)]}


def combinations(tries: Mapping[str, Sequence[YamlValue]]) -> list[Settings]:
    """Each value of each setting with each of the others.

    Raises:
        InputError: they are too many.
    """
    found: list[Settings] = [
        dict(zip(tries, values, strict=True)) for values in product(*tries.values())
    ]
    if len(found) > _MOST:
        raise InputError(f"--try: {len(found)} combinations; at most {_MOST} are tried")
    return found
