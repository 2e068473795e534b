"""The simulated means of the judged rows that `silicon/data` keeps."""

import csv
import gzip
import io
from collections.abc import Mapping
from pathlib import Path

from silicon.facts import FACTS_FILE, load_rows
from silicon.scores import Judged, judged
from silicon.simulate import RowOutcome

SIMULATED_FILE = FACTS_FILE.with_name("simulated.csv.gz")
DISAGGREGATED_FILE = FACTS_FILE.with_name("simulated-disaggregated.csv.gz")
_COLUMNS = ("id", "ttft_ms", "tpot_ms")


def keep(outcomes: Mapping[str, RowOutcome], file: Path = SIMULATED_FILE) -> None:
    """Keep these simulated means instead."""
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(_COLUMNS)
    for name, one in sorted(outcomes.items()):
        if one.ttft_ms is not None and one.tpot_ms is not None:
            table.writerow([name, f"{one.ttft_ms:.8g}", f"{one.tpot_ms:.8g}"])
    file.write_bytes(gzip.compress(lines.getvalue().encode(), mtime=0))


def kept(file: Path = SIMULATED_FILE) -> dict[str, RowOutcome]:
    """The simulated means that are kept, by row."""
    text = gzip.decompress(file.read_bytes()).decode()
    return {
        line["id"]: RowOutcome(
            line["id"], "ok", None, float(line["ttft_ms"]), float(line["tpot_ms"])
        )
        for line in csv.DictReader(io.StringIO(text))
    }


def judged_half(name: str) -> list[Judged]:
    """The judged rows of `development` or `held-out`, with the means that are kept."""
    rows = [row for row in load_rows().values() if row.is_judged and row["split"] == name]
    return judged(rows, kept())
