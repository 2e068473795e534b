"""Prepares a fit: the server's scenario, with settings that results show or the fit tries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calibrate.coefficients.alternatives import Settings, combinations, default_tries, parse_tries
from calibrate.coefficients.coefficient import Coefficient, coefficients_of
from calibrate.coefficients.fit import CoefficientFit, closeness, fit_coefficients
from calibrate.coefficients.mean_step import mean_step
from calibrate.coefficients.request_slots import slots_shown
from calibrate.coefficients.result_files import ResultFile
from calibrate.coefficients.runs import FitRun
from calibrate.coefficients.scenario import Draft, FitServerOptions, draft_scenario, families_of
from sim.families import family_named
from sim.family.section import setting_pairs
from sim.latency.config import parallelism
from sim.scenario.overrides import Change

Say = Callable[[str], None]
_FAMILY = "scheduler.family"

# Settings whose times are off by at most this factor of the best count as equally good.
_AS_CLOSE = 1.05


@dataclass(slots=True)
class PreparedFit:
    """What a fit needs.

    Attributes:
        draft: the scenario.
        runs: one for each file.
        coefficients: what is fitted.
        step_s: duration of a mean step.
        remarks: about settings that the results do not show, one line each.
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

    server: FitServerOptions
    overrides: Sequence[str]
    tries: Sequence[str]


def prepare(
    files: Sequence[ResultFile], options: PrepareOptions, *, beside: Path, out: Path, say: Say
) -> PreparedFit:
    """Choose the settings that neither the results nor the user give.

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
    sources = [file.source for file in files]
    set_ = dict(each.partition("=")[::2] for each in options.overrides)
    families = families_of(sources, options.server, set_.get(_FAMILY))
    candidates: list[_Candidate] = []
    for family in families:
        draft = draft_scenario(sources, options.server, out, family)
        known = draft.known | set_.keys() | tries.keys()
        draft.load(files[0].source, files[0].path, options.overrides, beside, out)
        section = draft.loaded.scenario.scheduler
        keys = family_named(section.family)
        remarks = []
        if f"scheduler.{keys.rows_key}" not in known:
            remarks = _take_slots(draft, keys.rows_key, section.max_rows, files)
            draft.load(files[0].source, files[0].path, (), beside, out)
        guesses = tries
        if not tries and f"scheduler.{keys.step_tokens_key}" not in known:
            guesses = default_tries(
                keys.step_tokens_key, section.model_dump()[keys.step_tokens_key]
            )
        named = {} if len(families) == 1 else {_FAMILY: family}
        candidates += [
            _Candidate(draft, settings, {**named, **settings}, remarks)
            for settings in combinations(guesses)
        ]
    return _best(candidates, files, say)


def _take_slots(draft: Draft, key: str, default: int, files: Sequence[ResultFile]) -> list[str]:
    """Set how many requests run at a time, if the results show it; returns a remark."""
    shown = []
    for file in files:
        requests = file.source.requests
        until_ns = float(requests[file.first].arrival_ns)
        shown.append(slots_shown(requests[: file.first], until_ns))
    slots = [each for each in shown if each is not None]
    if not slots:
        later = [slots_shown(file.source.requests) for file in files]
        what = f"nobody waits for a request slot in these results; {default} is its default"
        if any(later):
            most = max(each or 0 for each in later)
            what = (
                f"{default} is its default, but {most} requests ran while others waited after those"
                f" that the fit sees: give a larger --first, or --set scheduler.{key}={most}"
            )
        return [f"unknown: scheduler.{key}: {what}"]
    draft.data["scheduler"][key] = max(slots)
    return [f"scheduler.{key} {max(slots)}: that many requests ran while others waited"]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One way in which the server may be set.

    Attributes:
        draft: its scenario.
        settings: changes of the scenario.
        shown: what is different between candidates.
        remarks: about its other settings.
    """

    draft: Draft
    settings: Settings
    shown: Settings
    remarks: list[str]

    def prepared(self, files: Sequence[ResultFile]) -> PreparedFit:
        draft = self.draft
        changes = [Change(key, value, f"--try {key}") for key, value in self.settings.items()]
        runs = [file.run(draft.loaded, changes) for file in files]
        mean = mean_step(runs)
        built = runs[0].twin.built(())
        if parallelism(built.loaded.scenario.latency).pp > 1:
            reason = "steps of a pipeline of stages cannot be fitted"
            raise draft.loaded.error(("latency", "pp"), reason)
        coefficients = coefficients_of(
            built.loaded, mean, overlaps=built.scheduler.overlaps, has_start=draft.has_start
        )
        return PreparedFit(draft, runs, coefficients, mean.seconds, list(self.remarks))


def _best(candidates: Sequence[_Candidate], files: Sequence[ResultFile], say: Say) -> PreparedFit:
    """The candidate with which times are nearest; of equally near ones the first."""
    if len(candidates) == 1:
        return candidates[0].prepared(files)
    off = []
    for candidate in candidates:
        prepared = candidate.prepared(files)
        off.append(closeness(prepared.runs, prepared.coefficients, prepared.step_s))
        say(f"{setting_pairs(candidate.shown)}: times are {100 * off[-1]:.2f} % off")
    near = [
        candidate
        for candidate, each in zip(candidates, off, strict=True)
        if each <= _AS_CLOSE * min(off)
    ]
    best = near[0]
    for key, value in best.settings.items():
        best.draft.set(key, value)
    prepared = best.prepared(files)
    taken = setting_pairs(best.shown)
    if len(near) == 1:
        remark = f"not in the results: {taken}: nearer than other values that were tried"
    else:
        others = " or ".join(setting_pairs(candidate.shown) for candidate in near[1:])
        remark = f"not in the results: {taken}, the default; as near: {others}"
    prepared.remarks.append(remark)
    return prepared
