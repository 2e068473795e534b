"""The command that runs a row of a contest, or a trace of an attack, again."""

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from sim.contest.plan import Contest, factor_of
from sim.contest.results import ContestCell, ContestResults
from sim.scenario.overrides import FILE_KEYS
from sim.sweep.plan import SEED, Settings, canonical


def run_command(results: ContestResults, cell: ContestCell) -> str:
    """The command that runs a cell again with the first seed, from the current folder."""
    contest = results.contest
    traffic = next(each for each in results.traffic if each.name == cell.traffic)
    factor = factor_of(results.capacities[cell.traffic].factor, cell.load)
    settings = {
        **contest.settings_of(cell.contestant, traffic, factor),
        SEED: contest.seeds[0],
    }
    return command_of(contest, settings)


def command_of(contest: Contest, settings: Settings) -> str:
    """The command that runs the contest's scenario with these settings, from this folder."""
    here = {key: _from_here(key, value, contest.base.base_dir) for key, value in settings.items()}
    texts = [*contest.overrides, *(f"{key}={canonical(value)}" for key, value in here.items())]
    options = [f"--set {quote(text)}" for text in texts]
    return " ".join(["simulate run", quote(str(contest.base.path)), *options])


def _from_here(key: str, value: Any, base_dir: Path) -> Any:
    """A value whose paths, relative to the scenario's folder, are made relative to this one."""
    if isinstance(value, Mapping):
        return {
            name: _from_here(str(name).rpartition(".")[2], item, base_dir)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_from_here(key, item, base_dir) for item in value]
    is_file = key.rpartition(".")[2] in FILE_KEYS and isinstance(value, str)
    if is_file and (base_dir / value).exists():
        return os.path.relpath(base_dir / value)
    return value
