"""`calibrate validate SCENARIO.yaml MEASURED`: compares a scenario with a measured run of it."""

from collections.abc import Sequence
from pathlib import Path

from calibrate.commands.measured_input import MeasuredInput
from sim.commands.output import check_folder, print_line, print_remarks, print_table
from sim.core.files import json_text


def validate_measured(
    given: MeasuredInput, *, timeseries: Path | None, folder: Path | None, as_json: bool
) -> None:
    """Simulate the scenario and print how far it is from the measured run.

    Args:
        given: the scenario and the measured run.
        timeseries: a CSV of the measured numbers of running and waiting requests over time.
        folder: also write validation.json, tables and pictures there.
        as_json: print JSON, no tables.

    Raises:
        InputError: the scenario or a measured file is bad, or the folder cannot be written to.
    """
    from calibrate.measured.document import document
    from calibrate.measured.over_time import read_samples
    from calibrate.measured.tables import request_lines, tables
    from calibrate.measured.validate import validate_measured as compare

    if folder is not None:
        # matplotlib takes half a second to load, so it is loaded for pictures only.
        from calibrate.measured.files import check_inputs_stay, write_validation

        check_folder(folder, given.scenario)
        check_inputs_stay(folder, (given.scenario, given.run, *filter(None, [timeseries])))
    measured, twin = given.read()
    samples = None if timeseries is None else read_samples(timeseries)
    validation = compare(twin, measured, given.selection, samples)
    written: Sequence[Path] = ()
    if folder is not None:
        written = write_validation(validation, folder)
    if as_json:
        print_line(json_text(document(validation)).rstrip())
        return
    for line in request_lines(validation):
        print_line(line)
    for table in tables(validation):
        print_line("")
        print_table(table)
    if validation.remarks:
        print_line("")
    print_remarks(validation.remarks, written)
