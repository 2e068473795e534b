"""Compares real runs with simulations of them (docs/how-to/validation.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibrate.cases import labels, repeats, same_load
from calibrate.errors import RealRuns, StageErrors, real_runs, stage_errors
from calibrate.fingerprints import first_difference
from calibrate.ranking import Ranking, rank
from calibrate.rebuild import RebuiltRun
from calibrate.stages import SimulatedRun, simulate_profile, simulate_recorded
from calibrate.validate_steps import StepErrors, step_errors
from sim.core.errors import InputError
from sim.latency.model import RangeReport
from sim.latency.profile.format import LatencyProfile

# The stages that simulate.
STAGES = ("recorded", "profile")


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario: its real runs and their simulations.

    Attributes:
        label: the scenario's name; if others have it too, with the values that differ.
        runs: repeats.
        simulated: by stage, one simulation of each run.
        real: mean and spread of the repeats.
        errors: by stage.
    """

    label: str
    runs: tuple[RebuiltRun, ...]
    simulated: Mapping[str, tuple[SimulatedRun, ...]]
    real: RealRuns
    errors: Mapping[str, StageErrors]


@dataclass(frozen=True, slots=True)
class Validation:
    """How far predictions of a profile are from real runs.

    Attributes:
        profile: its name.
        steps: errors of the profile's step times by mode.
        left_range: steps of the real runs outside the profile's range.
        cases: scenario by scenario.
        rankings: one for each load that several settings served.
        remarks: remarks for the reader, one line each.
    """

    profile: str
    steps: Mapping[str, StepErrors]
    left_range: RangeReport
    cases: tuple[Case, ...]
    rankings: tuple[Ranking, ...]
    remarks: tuple[str, ...]


def validate(
    profile: LatencyProfile, runs: Sequence[RebuiltRun], *, any_fingerprint: bool = False
) -> Validation:
    """Simulate every run with its own and with the profile's step times, and compare.

    Args:
        profile: the profile to judge.
        runs: real runs whose decisions were found to be reproducible.
        any_fingerprint: also use runs on another device, with other software or of another model.

    Raises:
        InputError: a run's fingerprint is not the profile's, or the profile has no times for a
            mode that occurs.
    """
    foreign = [difference for run in runs if (difference := fingerprint_difference(profile, run))]
    if foreign and not any_fingerprint:
        raise InputError(f"{foreign[0]} (--any-fingerprint compares them anyway)")
    steps, left_range = step_errors(runs, profile)
    groups = repeats(runs)
    scenarios: list[Mapping[str, Any]] = [g[0].recorded.meta["scenario"] for g in groups]
    cases = [
        _case(label, group, profile) for label, group in zip(labels(scenarios), groups, strict=True)
    ]
    rankings = [_ranking([cases[i] for i in numbers]) for numbers in same_load(scenarios)]
    remarks = [*foreign, *_not_held_out(profile, runs)]
    if left := str(left_range):
        remarks.append(left)
    return Validation(
        profile.name, steps, left_range, tuple(cases), tuple(rankings), tuple(remarks)
    )


def fingerprint_difference(profile: LatencyProfile, run: RebuiltRun) -> str | None:
    """One line about the first key in which the fingerprints of run and profile differ."""
    difference = first_difference(profile.fingerprint, run.recorded.fingerprint)
    if difference is None:
        return None
    key, ours, theirs = difference
    return (
        f"{run.recorded.path}: fingerprint.{key}: {theirs!r} is not the {ours!r}"
        f" of profile {profile.name}"
    )


def _case(label: str, runs: Sequence[RebuiltRun], profile: LatencyProfile) -> Case:
    simulated = {
        "recorded": tuple(simulate_recorded(run) for run in runs),
        "profile": tuple(simulate_profile(run, profile) for run in runs),
    }
    real_logs = [run.log for run in runs]
    real = real_runs(real_logs)
    errors = {
        stage: stage_errors(real, real_logs, [run.log for run in simulated[stage]])
        for stage in STAGES
    }
    return Case(label, tuple(runs), simulated, real, errors)


def _ranking(cases: Sequence[Case]) -> Ranking:
    return rank(
        [case.label for case in cases],
        real=[case.real for case in cases],
        simulated={stage: [case.errors[stage].mean for case in cases] for stage in STAGES},
    )


def _not_held_out(profile: LatencyProfile, runs: Sequence[RebuiltRun]) -> list[str]:
    fitted_on = {source.file for source in profile.created_from}
    return [
        f"{run.name}: the profile was fitted on a log of this name; its steps may not be held out"
        for run in runs
        if run.name in fitted_on
    ]
