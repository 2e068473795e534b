"""`calibrate validate PROFILE RUN...`: compares simulations with real runs."""

from collections.abc import Sequence
from pathlib import Path

from sim.commands.output import check_folder, print_line, print_remarks, print_table
from sim.core.files import json_text


def validate_profile(
    name_or_path: str,
    logs: Sequence[Path],
    *,
    folder: Path | None,
    base_dir: Path | None,
    any_fingerprint: bool,
    skip: int,
    as_json: bool,
) -> bool:
    """Replay the runs, simulate them twice, and print how far the simulations are off.

    Args:
        name_or_path: a shipped profile by name, or a file.
        logs: run logs of real runs.
        folder: also write validation.json and pictures there.
        base_dir: what paths in the runs' scenarios are relative to; None: each log's folder.
        any_fingerprint: also compare runs of another device, software or model.
        skip: no metric counts this many requests of each run, the first ones by arrival.
        as_json: print JSON, no tables.

    Returns:
        False if the replay of a run makes a different decision; then nothing else is done.

    Raises:
        InputError: the profile or a log is bad, or the folder cannot be written to.
    """
    from calibrate.rebuild import rebuild
    from calibrate.stages import replay_decisions
    from calibrate.validate import validate as compare
    from calibrate.validate_document import document
    from calibrate.validate_tables import tables
    from calibrate.verdict import verdict
    from sim.latency.profile.format import load_profile

    if folder is not None:
        for log in logs:
            check_folder(folder, log)
    profile = load_profile(name_or_path, Path(), key=())
    runs = [rebuild(path, base_dir, skip) for path in logs]
    diverged = [(run, where) for run in runs if (where := replay_decisions(run))]
    for run, divergence in diverged:
        print_line(f"{run.recorded.path}: a decision differs in the replay")
        print_line(str(divergence))
    if diverged:
        return False
    validation = compare(profile, runs, any_fingerprint=any_fingerprint)
    written: Sequence[Path] = ()
    if folder is not None:
        # matplotlib takes half a second to load, so it is loaded for pictures only.
        from calibrate.validate_files import write_validation

        written = write_validation(validation, folder)
    if as_json:
        print_line(json_text(document(validation)).rstrip())
        return True
    num_steps = sum(len(run.recorded.steps) for run in runs)
    print_line(f"replay: all {num_steps:,} steps of {len(runs)} logs are decided the same again\n")
    for table in tables(validation):
        print_table(table)
        print_line("")
    print_remarks(validation.remarks, written)
    for sentence in verdict(validation):
        print_line(sentence)
    return True
