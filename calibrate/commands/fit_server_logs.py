"""`calibrate fit SERVER.LOG...`: from the text logs of a server to a latency profile."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.commands.output import print_line, print_table
from sim.core.errors import InputError
from sim.core.files import check_target, refuse_input, write_text

if TYPE_CHECKING:
    from calibrate.power.add import PowerReadings
    from calibrate.server_logs.fit import ServerFit


def fit_server_logs(
    logs: Sequence[Path],
    output: Path,
    *,
    name: str | None,
    label: str,
    seed: int,
    model: str | None,
    power: "PowerReadings | None" = None,
) -> None:
    """Fit a profile to the logs of one server under several loads, write it, and print its errors.

    With readings of `power`, the profile has the server's power, too.

    Raises:
        InputError: a log is bad (see `calibrate.server_logs.fit`), the model is not known, or the
            file cannot be written.
    """
    from calibrate.power.add import print_power, with_power_of_server_logs
    from calibrate.server_logs.fit import fit_server_logs as fit
    from calibrate.tables import error_table, term_table
    from sim.commands.import_server_log import model_of_log
    from sim.latency.architectures.model_key import load_model_shape
    from sim.latency.profile.format import profile_text

    if output.suffix != ".json":
        raise InputError(f"{output}: expected a name that ends in .json")
    check_target(output)
    refuse_input(output)
    found = fit(logs, name=name or output.stem, label=label, seed=seed)
    key, _ = model_of_log(found.logs[-1], model)
    shape = load_model_shape(key, Path())
    profile = found.profile.model_copy(update={"model": shape.name})
    added = with_power_of_server_logs(profile, logs, power)
    write_text(output, profile_text(added.profile))
    print_table(error_table(found.profile))
    print_table(term_table(found.profile))
    for remark in _remarks(found):
        print_line(remark)
    print_power(added)
    print_line(f"profile: {output}")


def _remarks(found: "ServerFit") -> Iterator[str]:
    decodes, prefills = found.num_decodes, found.num_prefills
    yield f"{decodes} groups of decode steps, {prefills} stretches with prefills"
    yield "The host's time between two steps is in these times: no host preset beside them."
    if found.extend.cold_start_s:
        cold = f"cold_start_s: {found.extend.cold_start_s:.3g}"
        tokens = f"cold_start_tokens: {found.extend.cold_start_tokens}"
        longer = "what the first prompts after an idle time took longer"
        yield f"host: {{{cold}, {tokens}}} is {longer}."
    yield "A log does not have the front end's time: host.front_end_s is not known from it."
    for log in found.logs:
        yield from (f"{log.paths[-1].name}: {note}" for note in log.notes())
