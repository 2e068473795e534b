"""`simulate import --command`: a scenario from the command lines of a client and of a server."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.commands.import_scenario import Hint, known_model, scenario_text
from sim.commands.output import ResultFiles, print_line
from sim.core.errors import InputError
from sim.core.files import make_directory, write_text
from sim.core.flags import split_command
from sim.core.say import say
from sim.families import FAMILIES
from sim.latency.host import host_presets
from sim.launch_command import ServerSettings
from sim.scenario.load import load_scenario_text, refuse_user_classes
from sim.server_section import accepted_settings
from sim.workload.bench.command import ReadBench, read_bench_command

SCENARIO = "scenario.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLines:
    """The options of the command line.

    Attributes:
        command: the client's command line.
        server: the server's.
        hardware: the GPU, as `latency.system` or `hardware` has it.
        out: the folder to write.
    """

    command: str | None
    server: str | None
    hardware: str | None
    out: Path

    def required(self, option: str) -> str:
        """The value of an option. Raises InputError without it."""
        value: str | None = getattr(self, option)
        if value is None:
            without = " without SOURCE" if option == "command" else " with --command"
            raise InputError(f"--{option}: is needed{without}")
        return value

    def check_unused(self) -> None:
        """Raise InputError if one of the options is given."""
        for option in ("command", "server", "hardware"):
            if getattr(self, option) is not None:
                raise InputError(f"--{option}: goes without SOURCE")


def import_command_lines(lines: CommandLines) -> None:
    """Write the scenario, and say what is not in it.

    Raises:
        InputError: a command line of another program, or with a bad value; an option is missing.
    """
    bench = read_bench_command(split_command(lines.required("command"), "--command"))
    system = lines.required("hardware").replace("-", "_")
    server = read_server(lines.required("server"), system)
    ResultFiles(directory=lines.out).check(Path())
    data, hints = _compose(bench, server, system)
    text = scenario_text(data, hints)
    path = lines.out / SCENARIO
    refuse_user_classes(load_scenario_text(text, name=str(path), base_dir=lines.out))
    make_directory(lines.out)
    write_text(path, text)
    for note in _notes(bench, server, hints):
        say(f"servetwin: {note}")
    print_line(f"next: simulate workload {path}")
    print_line(f"      simulate run {path}")


def read_server(text: str, system: str) -> ServerSettings:
    """The settings of a server's command line; `system` is its GPU, as `latency.system` has it.

    Raises:
        InputError: it launches no server that is known, or names no model.
    """
    command = split_command(text, "--server")
    for family in FAMILIES.values():
        if (settings := family.read_launch(command, system)) is not None:
            if not settings.model:
                raise InputError("--server: names no model")
            return settings
    titles = " or ".join(family.title for family in FAMILIES.values())
    raise InputError(f"--server: is no command that launches {titles}")


def _compose(
    bench: ReadBench, server: ServerSettings, system: str
) -> tuple[dict[str, Any], list[Hint]]:
    family = FAMILIES[server.scheduler["family"]]
    of_model, model_notes = family.pools_of_model(server)
    section = accepted_settings(
        family.section(),
        {"family": family.name},
        {**_without(server.scheduler, "family"), **of_model},
        source="the command",
    )
    name = server.model.rstrip("/").rpartition("/")[2]
    data: dict[str, Any] = {
        "name": f"{bench.workload['client']} {name}",
        "model": known_model(server.model) or server.model,
        "latency": measured_operators(server, system),
    }
    hints = [Hint("workload", note) for note in bench.notes]
    presets = [name for name in host_presets() if name.startswith(family.name)]
    if server.host in presets:
        data["host"] = server.host
        text = f"host {server.host} and scheduler.version are the newest; known hosts:"
        hints.append(Hint("host", f"{text} {', '.join(presets)}"))
    data |= {"workload": bench.workload, "scheduler": section.settings}
    if server.replicas > 1:
        data["replicas"] = server.replicas
    if bench.slo:
        data["slo"] = bench.slo
    notes = (*section.hints, *server.notes, *model_notes)
    hints += [Hint("scheduler", note) for note in notes]
    return data, hints


def measured_operators(server: ServerSettings, system: str) -> dict[str, Any]:
    """The section `latency` of kind aiconfigurator for a server."""
    family = server.scheduler["family"]
    latency: dict[str, Any] = {"kind": "aiconfigurator", "system": system, "backend": family}
    latency |= {key: value for key, value in server.parallel.items() if value != 1 or key == "tp"}
    if server.quantization:
        latency["quantization"] = server.quantization
    return latency


def _without(settings: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != key}


def _notes(bench: ReadBench, server: ServerSettings, hints: Sequence[Hint]) -> Iterator[str]:
    for option, flags in (("--command", bench), ("--server", server)):
        if flags.unknown:
            yield f"{option}: not known, so not simulated: {'; '.join(flags.unknown)}"
        if flags.ignored:
            yield f"{option}: changes nothing here: {' '.join(flags.ignored)}"
    yield from (hint.text for hint in hints)
    if not bench.workload.get("special_tokens"):
        yield (
            "workload.special_tokens: set it to the tokens that the tokenizer or a chat template"
            " adds to each prompt"
        )
