"""Simulates rows, each as the scenario that describes it."""

import json
import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from silicon.facts import Row
from silicon.scenario import scenario_text
from sim.commands.running.simulate import simulate_built
from sim.confidence.confidence import confidence_of
from sim.core.errors import InputError
from sim.des.run import RunOptions
from sim.metrics.summary import summarise
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """What came of a row.

    Attributes:
        id: the row.
        status: `ok` or `skipped`.
        reason: why it was skipped; else None.
        ttft_ms, tpot_ms: simulated means over requests, as the row's client computes them.
        ttft_low_ms, ttft_high_ms, tpot_low_ms, tpot_high_ms: their intervals, if any servers like
            the row's are in the development half. If the row is in it, it is one of them itself.
        wall_s: time that it took.
    """

    id: str
    status: str
    reason: str | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    ttft_low_ms: float | None = None
    ttft_high_ms: float | None = None
    tpot_low_ms: float | None = None
    tpot_high_ms: float | None = None
    wall_s: float = 0.0

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def simulate_row(row: Row, *, overrides: tuple[str, ...] = ()) -> RowOutcome:
    """Simulate a row, with `--set` options in addition."""
    begin_s = time.perf_counter()
    try:
        text = scenario_text(row)
        built = build(load_scenario_text(text, overrides, name=row.id))
        summary = summarise(simulate_built(built, RunOptions()))
    except InputError as error:
        return RowOutcome(row.id, "skipped", str(error), wall_s=time.perf_counter() - begin_s)
    ttft_ms, tpot_ms = summary["mean_ttft_ms"], summary["mean_tpot_ms"]
    wall_s = time.perf_counter() - begin_s
    if not (isinstance(ttft_ms, float) and isinstance(tpot_ms, float) and math.isfinite(tpot_ms)):
        return RowOutcome(row.id, "skipped", "no request finished", wall_s=wall_s)
    confidence = confidence_of(built.loaded, summary)
    ends = {
        f"{name}_{end}_ms": confidence.get(f"mean_{name}_ms", {}).get(end)
        for name in ("ttft", "tpot")
        for end in ("low", "high")
    }
    return RowOutcome(row.id, "ok", None, ttft_ms, tpot_ms, wall_s=wall_s, **ends)


def simulate_rows(rows: Iterable[Row], num_processes: int) -> Iterator[RowOutcome]:
    """Simulate rows on several processes; outcomes come in the order of the rows.

    Rows of one configuration go to the same process, which keeps its operator times.
    """
    rows = list(rows)
    if num_processes == 1:
        yield from map(simulate_row, rows)
        return
    with ProcessPoolExecutor(num_processes) as pool:
        yield from pool.map(simulate_row, rows, chunksize=8)


def kept_outcomes(out: Path) -> dict[str, RowOutcome]:
    """The outcomes of an earlier call; a last line that was cut off is not among them."""
    if not out.exists():
        return {}
    kept = {}
    for number, line in enumerate(out.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            outcome = RowOutcome(**json.loads(line))
        except (TypeError, ValueError):
            raise InputError(f"{out}:{number}: not an outcome of a row") from None
        kept[outcome.id] = outcome
    return kept
