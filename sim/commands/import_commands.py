"""`simulate import --command`: a scenario from the command lines of a client and of servers."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sim.commands.import_results import SCENARIO
from sim.commands.output import check_folder, print_line
from sim.commands.recorded_scenario import Hint, known_model, runnable, scenario_text
from sim.core.errors import InputError, say
from sim.core.files import make_folder, write_text
from sim.core.flags import Command, flag_words, split_command
from sim.engine.server_config import BOTH, PREFILL
from sim.families import FAMILIES
from sim.family.launch_command import ServerSettings, weight_formats
from sim.family.section import accepted_settings
from sim.latency.architectures.model_key import variant_of
from sim.latency.host import host_presets
from sim.scenario.load import load_scenario_text, refuse_user_classes
from sim.scenario.server_pools import uses_store
from sim.scenario.strict_yaml import parse_yaml_mapping, read_yaml_file
from sim.workload.bench_command import ReadBench, read_bench_command

# 400 Gbit/s InfiniBand.
_GPU_LINK_GB_S = 50
_ROLES_HINT = (
    "With kv_both the router says which servers prefill; this one is taken for a {} server."
)
_TRANSFER_HINT = (
    "PLACEHOLDER: the command lines do not say how fast KV is sent. 50 GB/s is a network interface"
    " of 400 Gbit/s for each GPU of a prefill server."
)
_STORE = "nvme"
_STORE_HINT = (
    "PLACEHOLDER: the command lines do not say how fast the storage is. See"
    " docs/explanation/storage.md#presets."
)
_CONFIG = re.compile(r"--config(=.*)?")
# The settings of a server, in either family, with which it speculates.
DRAFTS = {"speculative_algorithm", "speculative_config"}
UNKNOWN_ACCEPTANCE = {"rate": 0.7}
_ACCEPTANCE_HINT = (
    "PLACEHOLDER: the command lines do not say how many draft tokens are accepted. Servers log it."
)


def import_command_lines(
    command: str | None,
    servers: Sequence[str],
    hardware: str | None,
    out: Path,
    comments: Sequence[str] = (),
) -> None:
    """Write the scenario, with comments at its top, and say what is not in it."""
    if command is None:
        raise InputError("--command: is needed without SOURCE")
    if hardware is None:
        raise InputError("--hardware: is needed with --command")
    if not servers:
        raise InputError("--server: is needed with --command")
    bench = read_bench_command(split_command(command, "--command"))
    system = hardware.replace("-", "_")
    read = [_read_server(text, system) for text in servers]
    check_folder(out, Path())
    data, hints = runnable(*_compose(bench, read, system), out)
    text = scenario_text(data, [*(Hint("", comment) for comment in comments), *hints])
    path = out / SCENARIO
    refuse_user_classes(load_scenario_text(text, name=str(path), base_dir=out))
    make_folder(out)
    write_text(path, text)
    for note in _notes(bench, read, hints):
        say(f"servetwin: {note}")
    print_line(f"next: simulate workload {path}")
    print_line(f"      simulate run {path}")


def read_server(text: str, system: str) -> ServerSettings:
    """The settings of a server's command line; `system` is its GPU, as `latency.system` has it."""
    server = _read_server(text, system)
    _check_roles([server])
    return server


def _read_server(text: str, system: str) -> ServerSettings:
    command = _with_config(split_command(text, "--server"))
    for family in FAMILIES.values():
        if (settings := family.read_launch(command, system)) is not None:
            if not settings.model:
                raise InputError("--server: names no model")
            return _with_known_model(settings)
    titles = " or ".join(family.title for family in FAMILIES.values())
    raise InputError(f"--server: is no command that launches {titles}")


def _with_known_model(settings: ServerSettings) -> ServerSettings:
    """The settings with a path that is found from any folder, or with the model of a variant."""
    key = settings.model
    if (path := Path(key)).exists():
        return settings._replace(model=str(path.resolve()))
    if (variant := variant_of(key)) is None:
        return settings
    stored = f" with weights of {variant.weights}" if variant.weights else ""
    note = f"model {key} is not known: {variant.model} is taken{stored}"
    return settings._replace(
        model=variant.model,
        quantization={**weight_formats(variant.weights), **settings.quantization},
        notes=(note, *settings.notes),
    )


def _with_config(command: Command) -> Command:
    """The command with the flags of the YAML file that its `--config` names."""
    at = next((i for i, word in enumerate(command.words) if _CONFIG.fullmatch(word)), None)
    if at is None:
        return command
    name = command.words[at].partition("=")[2]
    num_words = 1 if name else 2
    name = name or next(iter(command.words[at + 1 : at + 2]), "")
    if not name:
        raise InputError("--server: --config: has no value")
    given = parse_yaml_mapping(read_yaml_file(Path(name)), name).value
    assert isinstance(given, dict)  # noqa: S101 - what parse_yaml_mapping makes
    flags = [word for key, value in given.items() for word in flag_words(key, value)]
    rest = [*command.words[:at], *command.words[at + num_words :]]
    return command._replace(words=rest, config_flags=flags)


def _check_roles(servers: Sequence[ServerSettings]) -> None:
    """Check that the servers both prefill and decode, each or together."""
    roles = {role for server in servers for role in server.roles}
    split = sorted(roles - {BOTH}, reverse=True)
    if split and BOTH in roles:
        raise InputError(
            f"--server: a {' or '.join(split)} server does not go with one that does both: give"
            " the role of each command line"
        )
    if split and (len(split) == 1 or len(servers) == 1):
        raise InputError(
            f"--server: launches a {' or '.join(split)} server, which needs servers of the other"
            " role: give the command line of each with --server"
        )


def _compose(
    bench: ReadBench, servers: Sequence[ServerSettings], system: str
) -> tuple[dict[str, Any], list[Hint]]:
    _check_roles(servers)
    first = servers[0]
    models = list(dict.fromkeys(server.model for server in servers))
    if len(models) > 1:
        raise InputError(f"--server: the servers have different models: {' and '.join(models)}")
    name = first.model.rstrip("/").rpartition("/")[2]
    data: dict[str, Any] = {
        "name": f"{bench.workload['client']} {name}",
        "model": known_model(first.model) or first.model,
    }
    hints = [Hint("workload", note) for note in bench.notes]
    if len(servers) == 1:
        sections, found = sections_of(first, system)
        order = ("latency", "host", "workload", "store", "scheduler", "replicas")
        sections["workload"] = bench.workload
        data |= {key: sections[key] for key in order if key in sections}
        hints += found
    else:
        data["workload"] = bench.workload
        pools, found = _pools(servers, system)
        data |= pools
        hints += found
    servers_of = data["pools"].values() if "pools" in data else (data,)
    if any(DRAFTS.intersection(each["scheduler"]) for each in servers_of):
        data["acceptance"] = dict(UNKNOWN_ACCEPTANCE)
        hints.append(Hint("acceptance", _ACCEPTANCE_HINT))
    if bench.slo:
        data["slo"] = bench.slo
    return data, hints


def sections_of(server: ServerSettings, system: str) -> tuple[dict[str, Any], list[Hint]]:
    """The sections of a scenario, or of a pool, that describe a server; and comments on them."""
    family = FAMILIES[server.scheduler["family"]]
    section = accepted_settings(
        family.section(),
        {"family": family.name},
        {key: value for key, value in server.scheduler.items() if key != "family"},
        source="the command",
    )
    of_model, model_notes = family.pools_of_model(
        server.model, section.settings, server.parallel["pp"]
    )
    hints = []
    data: dict[str, Any] = {"latency": measured_operators(server, system)}
    presets = [name for name in host_presets() if name.startswith(family.name)]
    if server.host in presets:
        data["host"] = server.host
        newest = f"host {server.host} and scheduler.version are the newest"
        nearest = f"host {server.host} is the nearest to the version"
        text = f"{nearest if 'version' in server.scheduler else newest}; known hosts:"
        hints.append(Hint("host", f"{text} {', '.join(presets)}"))
    data["scheduler"] = section.settings | of_model
    if uses_store(data):
        data["store"] = _STORE
        hints.append(Hint("store", _STORE_HINT))
    if server.replicas > 1:
        data["replicas"] = server.replicas
    notes = (*section.hints, *server.notes, *model_notes)
    hints += [Hint("scheduler", note) for note in notes]
    return data, hints


def _pools(servers: Sequence[ServerSettings], system: str) -> tuple[dict[str, Any], list[Hint]]:
    """The sections `pools` and `transfer`; a command line is a pool of one server."""
    pools: dict[str, Any] = {}
    data: dict[str, Any] = {}
    hints = [Hint("pools", "Each command line is a server: set replicas to how many there are.")]
    roles = _roles(servers)
    for number, (server, role) in enumerate(zip(servers, roles, strict=True)):
        known = roles[:number]
        name = f"{role}-{known.count(role) + 1}" if role in known else role
        sections, found = sections_of(server, system)
        if "store" in sections:
            data["store"] = sections.pop("store")
        pools[name] = {"role": role, **sections}
        if len(server.roles) > 1:
            hints.append(Hint("pools", f"{name}: {_ROLES_HINT.format(role)}"))
        hints += [Hint("pools", f"{name}: {hint.text}") for hint in found]
    data["pools"] = pools
    if PREFILL in roles:
        num_gpus = _num_gpus(servers[roles.index(PREFILL)])
        data["transfer"] = {"bandwidth_gb_s": _GPU_LINK_GB_S * num_gpus}
        hints.append(Hint("transfer", _TRANSFER_HINT))
    return data, hints


def _roles(servers: Sequence[ServerSettings]) -> list[str]:
    """The role of each server; those whose flags leave it open take what is missing, in turn."""
    given = {server.roles[0] for server in servers if len(server.roles) == 1}
    roles = []
    for server in servers:
        role = next((role for role in server.roles if role not in given), server.roles[-1])
        given.add(role)
        roles.append(role)
    return roles


def _num_gpus(server: ServerSettings) -> int:
    """GPUs of a server: `moe_ep` spreads experts over the same ones."""
    return server.parallel["tp"] * server.parallel["dp"] * server.parallel["pp"]


def measured_operators(server: ServerSettings, system: str) -> dict[str, Any]:
    """The section `latency` of kind aiconfigurator for a server."""
    family = server.scheduler["family"]
    latency: dict[str, Any] = {"kind": "aiconfigurator", "system": system, "backend": family}
    latency |= {key: value for key, value in server.parallel.items() if value != 1 or key == "tp"}
    if server.quantization:
        latency["quantization"] = server.quantization
    return latency


def _notes(
    bench: ReadBench, servers: Sequence[ServerSettings], hints: Sequence[Hint]
) -> Iterator[str]:
    flags = [("--command", bench.unknown, bench.ignored)]
    flags += [("--server", server.unknown, server.ignored) for server in servers]
    for option, unknown, ignored in flags:
        if unknown:
            yield f"{option}: not known, so not simulated: {'; '.join(unknown)}"
        if ignored:
            yield f"{option}: changes nothing here: {' '.join(ignored)}"
    yield from (hint.text for hint in hints)
    if not bench.workload.get("special_tokens"):
        yield (
            "workload.special_tokens: set it to the tokens that the tokenizer or a chat template"
            " adds to each prompt"
        )
