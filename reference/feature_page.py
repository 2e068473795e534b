"""The page that says which features go together: one table for each scheduler family."""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from reference.features import FEATURES, Feature, pairs, scenario_with
from reference.tables import keys_table
from sim.compiled.finder import ROOT
from sim.core.errors import InputError
from sim.families import FAMILIES
from sim.scenario.build import BuiltScenario, build
from sim.scenario.load import load_scenario_text

PATH = "reference/features.md"
_INTRODUCTION = """\
# Which features go together

Each row and each column is a feature of the scheduler, and a cell says how the two are known to
work together. The last cell of a row is for the feature alone. The page is made from the code: for
each pair the smallest scenario with both is built. A test also runs each pair, with and without
fast-forward, and checks all [invariants](../explanation/invariants.md) after each step.

* **C**: compared. Some of the kept cases that the engine's own classes decided have both features,
  and every field of every step is the same.
* **T**: tested. The pair is simulated and the test runs it; no kept case has both.
* **R**: refused. The table of lines says why such a server does not start.
* **N**: not simulated; the table has the line.
* **-**: one or the other. A server has one drafter and one role."""


class Cell(NamedTuple):
    """What is known of two features together: a letter of the page, and the error line if any."""

    letter: str
    line: str = ""


def features_page() -> str:
    """The text of the page in Markdown."""
    blocks = [_INTRODUCTION]
    for family in FEATURES:
        blocks += _family_blocks(family)
    return "\n\n".join(blocks) + "\n"


def built_pair(family: str, features: tuple[Feature, ...]) -> BuiltScenario:
    """The smallest scenario with these features.

    Raises:
        InputError: they do not go together.
    """
    text = json.dumps(scenario_with(family, *features))
    return build(load_scenario_text(text, name="", base_dir=Path()))


def cell_of(family: str, features: tuple[Feature, ...]) -> Cell:
    """What the page says of a feature, or of two."""
    try:
        built_pair(family, features)
    except InputError as error:
        line = str(error).removeprefix(":1: ")
        return Cell("N" if "simulated" in line else "R", line)
    is_kept = any(all(each.in_case(case) for each in features) for case in _cases(family))
    return Cell("C" if is_kept else "T")


def _family_blocks(family: str) -> Iterator[str]:
    features = FEATURES[family]
    cells = {_names(of): cell_of(family, of) for of in pairs(family)}
    lines = list(dict.fromkeys(cell for cell in cells.values() if cell.line))
    marks = {cell: f"{cell.letter}{number}" for number, cell in enumerate(lines, 1)}
    rows = []
    for index, feature in enumerate(features):
        others = [cells.get(_names((other, feature))) for other in features[:index]]
        row = [*others, cells[_names((feature,))]]
        shown = ["-" if cell is None else marks.get(cell, cell.letter) for cell in row]
        rows.append((f"{index + 1}. {feature.name}", *shown, *[""] * (len(features) - len(row))))
    yield f"## Family {family}"
    yield f"Features of {FAMILIES[family].title}; a column has the number of its row."
    yield keys_table(("feature", *map(str, range(1, len(features) + 1))), rows)
    yield "Why features do not go together:"
    yield keys_table(("cell", "error line"), [(marks[cell], f"`{cell.line}`") for cell in lines])


def _names(features: tuple[Feature, ...]) -> tuple[str, ...]:
    return tuple(feature.name for feature in features)


@cache
def _cases(family: str) -> list[dict[str, Any]]:
    """The settings of all kept cases that the family's own classes decided."""
    folder = ROOT / "tests" / "conformance"
    if family == "vllm":
        paths = folder.glob("vllm_cases/*/*.json.gz")
        return [json.loads(gzip.decompress(path.read_bytes()))["config"] for path in paths]
    return [json.loads(path.read_bytes()) for path in folder.glob("*cases/*.config.json")]
