"""Prepares a fit: the server's scenario, with settings that results show or the fit tries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calibrate.coefficients.alternatives import Settings, combinations, parse_tries, untold_tries
from calibrate.coefficients.coefficient import Coefficient, coefficients_of
from calibrate.coefficients.fit import CoefficientFit, closeness, fit_coefficients
from calibrate.coefficients.mean_step import mean_step
from calibrate.coefficients.result_files import ResultFile
from calibrate.coefficients.runs import FitRun
from calibrate.coefficients.scenario import Draft, ServerOptions, draft_scenario, draft_text
from calibrate.coefficients.seats import seats_shown
from sim.latency.config import num_stages
from sim.scenario.load import LoadedScenario, load_scenario_text
from sim.scenario.overrides import Change
from sim.server_section import setting_pairs

Say = Callable[[str], None]

# Settings that come this close to the best cannot be told from it.
_AS_CLOSE = 1.05


@dataclass(slots=True)
class Prepared:
    """What a fit needs.

    Attributes:
        draft: the scenario.
        runs: one for each file.
        coefficients: what is fitted.
        step_s: duration of a mean step.
        remarks: about settings that the results do not tell, one line each.
    """

    draft: Draft
    runs: list[FitRun]
    coefficients: Sequence[Coefficient]
    step_s: float
    remarks: list[str] = field(default_factory=list)

    def fit(self, say: Say) -> CoefficientFit:
        return fit_coefficients(self.runs, self.coefficients, self.step_s, say)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """What a user says.

    Attributes:
        server: about the server.
        overrides: `key.path=value` options for the scenario.
        tries: `key.path=value,value,...` options: settings of which the best is taken.
    """

    server: ServerOptions
    overrides: Sequence[str]
    tries: Sequence[str]


def prepare(
    files: Sequence[ResultFile], options: PrepareOptions, *, beside: Path, out: Path, say: Say
) -> Prepared:
    """Choose what results and user leave open.

    Args:
        files: results of one server.
        options: what the user says.
        beside: a folder beside `out`, which gets the workloads.
        out: the folder that will be written.
        say: called with one line about each step.

    Raises:
        InputError: an option is bad, or the scenario.
    """
    tries = parse_tries(options.tries)
    for file in files:
        file.write_into(beside)
    draft = draft_scenario([file.source for file in files], options.server, out)
    remarks = []
    loaded = _load(draft, files, options.overrides, beside, out)
    section = loaded.scenario.scheduler
    told = draft.told | _set_keys(options.overrides) | tries.keys()
    if f"scheduler.{section.rows_key}" not in told:
        remarks += _take_seats(draft, section.rows_key, section.max_rows, files)
    loaded = _load(draft, files, options.overrides, beside, out)
    if num_stages(loaded.scenario.latency) > 1:
        raise loaded.error(("latency", "pp"), "steps of a pipeline of stages cannot be fitted")
    if not options.tries and f"scheduler.{section.chunk_key}" not in told:
        own = section.model_dump()[section.chunk_key]
        tries = untold_tries(section.chunk_key, own)
    prepared = _prepared(draft, files, loaded, {})
    if tries:
        prepared, remark = _best(draft, files, loaded, combinations(tries), say)
        remarks.append(remark)
    prepared.remarks = remarks
    return prepared


def _load(
    draft: Draft, files: Sequence[ResultFile], overrides: Sequence[str], beside: Path, out: Path
) -> LoadedScenario:
    """The scenario with the user's options, which become part of the draft."""
    text = draft_text(draft, files[0].source, files[0].path)
    name = str(out / "scenario.yaml")
    loaded = load_scenario_text(text, overrides, name=name, base_dir=beside)
    draft.take(loaded.raw)
    return loaded


def _set_keys(overrides: Sequence[str]) -> set[str]:
    return {each.partition("=")[0].strip() for each in overrides}


def _take_seats(
    draft: Draft, key: str, default: int, files: Sequence[ResultFile]
) -> list[str]:
    """Set how many requests run at a time, if the results show it; returns a remark."""
    shown = []
    for file in files:
        requests = file.source.requests
        until_ns = float(requests[file.first].arrival_ns)
        shown.append(seats_shown(requests[: file.first], until_ns))
    seats = [each for each in shown if each is not None]
    if not seats:
        return [
            f"scheduler.{key} is not told: in these results nobody waits for a seat;"
            f" {default} is its default"
        ]
    draft.data["scheduler"][key] = max(seats)
    return [f"scheduler.{key} {max(seats)}: that many requests ran while others waited"]


def _prepared(
    draft: Draft, files: Sequence[ResultFile], loaded: LoadedScenario, settings: Settings
) -> Prepared:
    changes = [Change(key, value, f"--try {key}") for key, value in settings.items()]
    runs = [file.run(loaded, changes) for file in files]
    mean = mean_step(runs)
    overlaps = runs[0].twin.built(()).scheduler.overlaps
    first = runs[0].twin.loaded
    coefficients = coefficients_of(first, mean, overlaps=overlaps, has_start=draft.has_start)
    return Prepared(draft, runs, coefficients, mean.seconds)


def _best(
    draft: Draft,
    files: Sequence[ResultFile],
    loaded: LoadedScenario,
    tried: Sequence[Settings],
    say: Say,
) -> tuple[Prepared, str]:
    """The settings with which times are nearest; of equally near ones the first. And a remark."""
    off = []
    for settings in tried:
        prepared = _prepared(draft, files, loaded, settings)
        off.append(closeness(prepared.runs, prepared.coefficients, prepared.step_s))
        say(f"{setting_pairs(settings)}: times are {100 * off[-1]:.2f} % off")
    near = [place for place, each in enumerate(off) if each <= _AS_CLOSE * min(off)]
    settings = tried[near[0]]
    for key, value in settings.items():
        draft.set(key, value)
    others = " or ".join(setting_pairs(tried[place]) for place in near)
    remark = f"{others} explain the results about as well: {setting_pairs(settings)} is taken"
    if len(near) == 1:
        remark = f"{setting_pairs(settings)}: explains the results better than other values tried"
    return _prepared(draft, files, loaded, settings), remark
