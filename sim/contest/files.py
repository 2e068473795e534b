"""The files of a contest: contest.json, contest.csv, contest.md, and a page."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.contest.again import run_command
from sim.contest.markdown import contest_markdown
from sim.contest.measures import MEASURES
from sim.contest.page import contest_page
from sim.contest.results import ContestCell, ContestResults, Overall
from sim.contest.tables import failure_lines
from sim.core.files import json_text, remove_file, write_text
from sim.report.page import write_report
from sim.sweep.store import point_file
from sim.tables.table import table_of_rows

RESULTS, TABLE, CARDS, REPORT = "contest.json", "contest.csv", "contest.md", "report"


def write_contest(results: ContestResults, out: Path) -> list[Path]:
    """Write all files; contest.json comes last, so if it exists, the others are complete."""
    remove_file(out / RESULTS)
    table_of_rows(list(contest_rows(results))).write_csv(out / TABLE)
    write_text(out / CARDS, contest_markdown(results))
    pages = write_report(contest_page(results), out / REPORT)
    write_text(out / RESULTS, contest_json(results))
    return [out / CARDS, pages[0], out / TABLE, out / RESULTS]


def contest_json(results: ContestResults) -> str:
    """The text of contest.json; equal results give equal text."""
    contest, section = results.contest, results.contest.section
    reasons = dict(failure_lines(results))
    content = {
        "name": contest.base.scenario.name,
        "scenario": contest.base.raw,
        "reference": results.reference,
        "loads": section.loads,
        "seeds": contest.seeds,
        "traffic": [
            {"name": traffic.name, "workload": traffic.workload, "pool_tokens": traffic.pool_tokens,
             "capacity": results.capacities[traffic.name]._asdict()}
            for traffic in results.traffic
        ],
        "contestants": [
            {"name": name, "settings": contest.settings[name], "out": reasons.get(name)}
            for name in section.contestants
        ],
        "confidence": results.confidence,
        "overall": [
            {"contestant": name, "load": load, "differences": {
                measure.name: asdict(results.overall(measure)[Overall(name, load)])
                | {"verdict": results.overall(measure)[Overall(name, load)].verdict(measure.better)}
                for measure in MEASURES
            }}
            for name in results.challengers for load in results.loads
        ],
        "cells": [_cell(results, cell) for cell in _cells(results)],
    }  # fmt: skip
    return json_text(content, indent=1)


def _cells(results: ContestResults) -> Iterator[ContestCell]:
    """The cells of all contestants that are not out."""
    return (cell for cell in results.outcomes if cell.contestant in results.contestants)


def _cell(results: ContestResults, cell: ContestCell) -> dict[str, Any]:
    differences = {}
    if cell.contestant != results.reference:
        found = {each: results.differences(each)[cell] for each in MEASURES}
        differences = {
            each.name: asdict(one) | {"verdict": one.verdict(each.better)}
            for each, one in found.items()
        }
    return {
        **cell._asdict(),
        "metrics": {each.name: asdict(results.interval(cell, each)) for each in MEASURES},
        "differences": differences,
        "point_files": [point_file(outcome.key) for outcome in results.outcomes[cell]],
        "command": run_command(results, cell),
    }


def contest_rows(results: ContestResults) -> Iterator[dict[str, Any]]:
    """A row for each cell: its means, and how it differs from the reference."""
    for cell in _cells(results):
        row: dict[str, Any] = cell._asdict()
        for measure in MEASURES:
            row[measure.name] = results.interval(cell, measure).mean
        for measure in MEASURES:
            found = results.differences(measure).get(cell)
            name = f"{measure.name}_difference"
            row[name] = None if found is None else found.mean
            row[f"{name}_low"] = None if found is None else found.low
            row[f"{name}_high"] = None if found is None else found.high
            row[f"{name}_corrected_p"] = None if found is None else found.corrected
            row[f"{name}_verdict"] = None if found is None else found.verdict(measure.better)
        yield {**row, "command": run_command(results, cell)}
