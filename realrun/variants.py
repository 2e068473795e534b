"""Variants of a scenario: named sets of changed keys, each served several times."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.core.errors import InputError
from sim.scenario.load import LoadedScenario, load_scenario

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")


@dataclass(frozen=True, slots=True)
class VariantRun:
    """One run of one variant.

    Attributes:
        name: the variant's name.
        repeat: number of this run of the variant, from 1.
        loaded: the scenario with the variant's changes; its name ends with the variant's name.
    """

    name: str
    repeat: int
    loaded: LoadedScenario

    @property
    def log_name(self) -> str:
        return f"{self.name}-{self.repeat}.jsonl.gz"


def variant_runs(
    path: Path, variants: Sequence[str], *, overrides: Sequence[str], repeats: int
) -> list[VariantRun]:
    """All runs: each variant once, then each variant a second time, and so on.

    Args:
        path: the scenario file.
        variants: for each variant its name and `key.path=value` options, separated by spaces.
        overrides: options for all variants; a variant's own options override them.
        repeats: runs of each variant.

    Raises:
        InputError: a name is missing, malformed or used twice, or the scenario is wrong.
    """
    loaded: dict[str, LoadedScenario] = {}
    for variant in variants:
        name, *changes = variant.split() or [""]
        if not _NAME.fullmatch(name):
            raise InputError(
                f"--variant {variant!r}: must begin with a name of small letters, digits, '.', '-'"
            )
        if name in loaded:
            raise InputError(f"--variant {variant!r}: another variant has this name")
        base = load_scenario(path, overrides).scenario.name
        loaded[name] = load_scenario(path, [*overrides, *changes, f"name={base}-{name}"])
    return [
        VariantRun(name, repeat, scenario)
        for repeat in range(1, repeats + 1)
        for name, scenario in loaded.items()
    ]
