"""`calibrate fit MEASURED --scenario SCENARIO.yaml`: host time of a step from time stamps."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from calibrate.commands.measured_input import MeasuredInput
from sim.commands.output import print_line, print_table
from sim.core.errors import InputError, say
from sim.core.files import check_target
from sim.latency.config import LayersLatencyConfig
from sim.latency.host import HostTimes
from sim.runlog import RunLog
from sim.scenario.load import LoadedScenario, refuse_pools
from sim.scenario.overrides import Change

_HOST, _PER_REQUEST, _FILE = "host_s", "host_per_request_s", "host"


def fit_host(given: MeasuredInput, output: Path, *, per_request: bool) -> None:
    """Estimate host times, write them, and print how much they improve the simulation.

    Args:
        given: the scenario and the measured run.
        output: the file of host times to write.
        per_request: also estimate a time for each request in a step.

    Raises:
        InputError: the scenario or the measured run is bad, the scenario's latency kind has no host
            times, or the file cannot be written.
    """
    from calibrate.measured.host_fit import fit_host_times
    from calibrate.measured.host_report import fit_document, fit_lines, fit_table, scenario_line
    from calibrate.measured.host_trials import HostTrials
    from calibrate.measured.tables import pair_lines
    from sim.latency.host import write_host_times

    _check_output(output, (given.scenario, given.run))
    measured, twin = given.read()
    loaded, selection = twin.loaded, given.selection
    refuse_pools(loaded, "a fit of host times")
    start = start_of(loaded, per_request=per_request)
    # Layer tables take host times as what overlap does not hide (`LayersLatency`).
    is_layers = isinstance(loaded.scenario.latency, LayersLatencyConfig)
    if not is_layers and twin.built(()).scheduler.overlaps:
        reason = (
            f"kind {loaded.scenario.latency.kind}: overlap scheduling hides {_HOST} behind the"
            " device time, so time stamps do not tell it; calibrate fit RESULTS --out FOLDER fits"
            " what is not hidden"
        )
        raise loaded.error(("latency",), reason)

    def simulate(times: HostTimes) -> RunLog:
        values = {_HOST: times.host_s}
        if per_request:
            values[_PER_REQUEST] = times.per_request_s
        return twin.run_with(
            [
                Change(f"latency.{key}", value, f"{given.scenario}: latency.{key}")
                for key, value in values.items()
            ]
        )

    trials = HostTrials(
        measured,
        simulate,
        selection=selection,
        start=start,
        per_request=per_request,
        say=lambda line: say(f"calibrate: {line}"),
    )
    fit = fit_host_times(trials)
    about = fit_document(fit, loaded, given.run, asdict(selection))
    write_host_times(fit.times, about, output)
    for line in pair_lines(fit.after.pairs, selection):
        print_line(line)
    print_table(fit_table(fit))
    for line in fit_lines(fit, per_request=per_request):
        print_line(line)
    print_line(f"host times: {output}")
    print_line(scenario_line(fit.times, loaded, output))


def _check_output(output: Path, inputs: Sequence[Path]) -> None:
    if output.suffix != ".json":
        raise InputError(f"{output}: expected a name that ends in .json")
    check_target(output)
    if output.resolve() in [path.resolve() for path in inputs]:
        raise InputError(f"{output}: is an input of the fit: give another file to write")


def start_of(loaded: LoadedScenario, *, per_request: bool) -> HostTimes:
    """The scenario's own host times. Raises InputError if its latency kind has none."""
    section = loaded.scenario.latency
    for key in (_HOST, _PER_REQUEST)[: 1 + per_request]:
        if key not in type(section).model_fields:
            reason = f"kind {section.kind} has no {key} that could be estimated"
            raise loaded.error(("latency",), reason)
    if getattr(section, _FILE, None) is not None:
        reason = f"gives the host times that the fit estimates: --set latency.{_FILE}=null"
        raise loaded.error(("latency", _FILE), reason)
    return HostTimes(getattr(section, _HOST), getattr(section, _PER_REQUEST, 0.0))
