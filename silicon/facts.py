"""The rows of the silicon table, with how each was measured."""

import csv
import gzip
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from sim.core.errors import InputError
from sim.extras import how_to_install

FACTS_FILE = Path(__file__).parent / "data" / "facts.csv.gz"
DISAGGREGATED_FILE = FACTS_FILE.with_name("disaggregated.csv.gz")
_TABLE = "systems/silicon_sample.csv"
# Reasons against rows that are judged apart from the others.
SPECULATION = "speculative decoding"
DISAGGREGATED = "prefill and decode on different servers"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured operating point.

    Attributes:
        id: its id in the table.
        facts: how it was measured: the line of data/facts.csv.gz, without empty columns, and that
            of data/disaggregated.csv.gz.
        ttft_ms, tpot_ms: measured means over requests.
    """

    id: str
    facts: Mapping[str, str]
    ttft_ms: float
    tpot_ms: float

    def __getitem__(self, name: str) -> str:
        return self.facts.get(name, "")

    def number(self, name: str) -> int | None:
        """A column of whole numbers; None where it is empty."""
        value = self.facts.get(name)
        return None if value is None else int(float(value))

    @property
    def is_judged(self) -> bool:
        """Whether the row counts: no copy of another one, and no reason against it."""
        return self["canonical"] == "yes" and not self["reason"]

    @property
    def is_disaggregated(self) -> bool:
        """Whether prefill and decode ran on different servers, and it is known on which."""
        is_split = self["reason"] == DISAGGREGATED
        return self["canonical"] == "yes" and is_split and bool(self["prefill"])

    @property
    def is_disaggregated_without_drafts(self) -> bool:
        """Whether it is known, too, that these servers did not speculate."""
        return self.is_disaggregated and self["speculated"] == "no"

    @property
    def drafts(self) -> int:
        """Draft tokens of each step, if the server is known to have speculated; else 0."""
        if self.is_disaggregated and self["speculated"] == "yes":
            return int(json.loads(self["decode"])["speculative-num-steps"])
        speculated = self["canonical"] == "yes" and self["reason"] == SPECULATION
        return self.number("num_drafts") or 0 if speculated else 0

    def as_if(self, *, speculated: bool) -> "Row":
        """A disaggregated row as if it were known whether its servers speculated.

        Only where that is not known: the flags that differ are in the facts. The id differs, too.
        """
        if not speculated:
            return replace(self, facts={**self.facts, "speculated": "no"})
        flags = {
            role: json.dumps(json.loads(self[role]) | json.loads(self[f"{role}_with_drafts"]))
            for role in ("prefill", "decode")
        }
        facts = {**self.facts, **flags, "speculated": "yes"}
        return replace(self, id=f"{self.id}+drafts", facts=facts)


def load_rows() -> dict[str, Row]:
    """All SGLang and vLLM rows of the table, by id.

    Raises:
        InputError: the package that contains the table is not installed.
    """
    if find_spec("aiconfigurator_core") is None:
        raise InputError(f"the silicon table needs: {how_to_install('aiconfigurator')}")
    text = (files("aiconfigurator_core") / _TABLE).read_text(encoding="utf-8")
    measured = {line["id"]: line for line in csv.DictReader(io.StringIO(text))}
    flags = {line["id"]: line for line in _lines(DISAGGREGATED_FILE)}
    return {
        line["id"]: Row(
            line["id"],
            {name: value for name, value in (line | flags.get(line["id"], {})).items() if value},
            float(measured[line["id"]]["silicon_ttft_ms"] or "nan"),
            float(measured[line["id"]]["silicon_tpot_ms"] or "nan"),
        )
        for line in _lines(FACTS_FILE)
    }


def _lines(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
