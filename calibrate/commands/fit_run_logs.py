"""`calibrate fit RUN_LOG...`: from run logs to a latency profile and its errors."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.commands.output import print_line, print_table
from sim.core.errors import InputError
from sim.core.files import check_target, refuse_input, write_text

if TYPE_CHECKING:
    from calibrate.power.add import PowerReadings


def fit_run_logs(
    logs: Sequence[Path],
    output: Path,
    *,
    name: str | None,
    label: str,
    num_folds: int,
    seed: int,
    power: "PowerReadings | None" = None,
) -> None:
    """Fit a profile to the logs, write it, and print its errors and terms.

    With readings of `power`, the profile has the server's power, too.

    Raises:
        InputError: a log is bad (see `load_dataset` and `fit_profile`), or the file cannot be
            written.
    """
    from calibrate.dataset import load_dataset
    from calibrate.fit import fit_profile, fit_remarks
    from calibrate.power.add import print_power, with_power_of_run_logs
    from calibrate.tables import error_table, left_out_table, remarks, term_table
    from sim.latency.profile.format import profile_text

    # In a scenario, a path without this ending is the name of a shipped profile.
    if output.suffix != ".json":
        raise InputError(f"{output}: expected a name that ends in .json")
    check_target(output)
    dataset = load_dataset(logs)
    refuse_input(output)  # which the check above could not know: a log is an input once it is read
    profile = fit_profile(
        dataset,
        name=name or output.stem,
        label=label,
        num_folds=num_folds,
        seed=seed,
    )
    added = with_power_of_run_logs(profile, logs, power)
    write_text(output, profile_text(added.profile))
    print_table(error_table(profile))
    if profile.left_out:
        print_table(left_out_table(profile))
    print_table(term_table(profile))
    for remark in [*remarks(profile), *fit_remarks(dataset, profile)]:
        print_line(remark)
    print_power(added)
    print_line(f"profile: {output}")
