"""`simulate workload`: the traffic of a scenario or a trace, without a run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sim.command_line import OutputFormat, Set, command, format_option, out_option, renamed
from sim.core.errors import InputError
from sim.tables.table import number, printable
from sim.workload import FORMATS, TraceFormat

if TYPE_CHECKING:
    from sim.workload.workload import Workload

    TraceName = TraceFormat
else:
    TraceName = StrEnum("TraceName", {name: name for name in FORMATS})


class _TrafficToWrite(NamedTuple):
    """A workload, and the bytes of KV that its model keeps of a token, if that is known."""

    workload: "Workload"
    bytes_per_token: int | None


@dataclass(frozen=True)
class _Asked:
    """What is asked for in place of rates and lengths."""

    miss_ratio: Annotated[
        bool, typer.Option("--miss-ratio", help="the hit rate of LRU caches of every size instead")
    ] = False
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="with --miss-ratio of a trace: sizes in GiB, too"),
    ] = None
    out: Annotated[Path | None, out_option("with --miss-ratio: draw it (.png or .svg)", "FILE")] = (
        None
    )
    fit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="write statistics to draw similar traffic from (workload kind fitted)",
        ),
    ] = None

    def check(self, trace: TraceFormat | None) -> None:
        """Raise InputError if the options do not go together."""
        for name, given in (("--model", self.model), ("--out", self.out)):
            if given is not None and not self.miss_ratio:
                raise InputError(f"{name}: needs --miss-ratio")
        if self.fit is not None and self.miss_ratio:
            raise InputError("--fit and --miss-ratio exclude each other")
        if trace is None and self.model is not None:
            raise InputError("--model: is for traces; a scenario has its own (--set model=NAME)")


@command(user_code=True)
def workload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="scenario file (YAML), or a trace")],
    asked: _Asked,
    set_: Set = None,
    format_: Annotated[OutputFormat, format_option("table")] = OutputFormat.TABLE,
    from_: Annotated[
        TraceName | None,
        typer.Option("--from", help="read FILE as a trace in this format; default: recognised"),
    ] = None,
    _trace: Annotated[str | None, renamed("--trace", "--from")] = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="tokens in a block of the cache; default: as in the trace, or 512"
            " (16 with --miss-ratio and --fit)",
        ),
    ] = None,
) -> None:
    """Describe traffic: rates, lengths, and the hit rate of an unlimited cache."""
    from sim.commands.output import print_line
    from sim.workload.traces.read import recognise

    trace = from_ or recognise(file)
    asked.check(trace)
    options = set_ or ()
    if trace is None:
        traffic = _of_scenario(file, options)
    else:
        traffic = _of_trace(file, trace, options, asked.model)
    if format_ is OutputFormat.TABLE and trace is not None:
        print_line(f"{file}: a trace, format {trace}")
    named = {} if trace is None else {"format": trace}
    show = _fit if asked.fit is not None else _show_curve if asked.miss_ratio else _show_stats
    show(traffic, block_size, None if format_ is OutputFormat.TABLE else named, asked)


def _show_stats(
    traffic: _TrafficToWrite, block_size: int | None, named: Mapping[str, Any] | None, _: _Asked
) -> None:
    from sim.commands.output import print_line
    from sim.tables.table import Column, Table
    from sim.workload.kinds.stats import workload_stats

    notes = traffic.workload.notes
    stats = asdict(workload_stats(traffic.workload, block_size))
    if named is not None:
        found = {**named, **stats, **({"notes": notes} if notes else {})}
        print_line(json.dumps(found, indent=2, allow_nan=False))
        return
    print_line("")
    for line in Table([Column(is_text=True), Column(to_text=number)], list(_flat(stats))).lines():
        print_line(f"  {line}")
    print_line("")
    for note in notes:
        print_line(printable(note))


def _show_curve(
    traffic: _TrafficToWrite, block_size: int | None, named: Mapping[str, Any] | None, asked: _Asked
) -> None:
    """Print the curve: as a table, or with the keys of `named` as JSON; and draw it."""
    from sim.commands.output import print_line, print_table
    from sim.report.hit_rates import curve_json, curve_sentences, curve_table
    from sim.workload.reuse.curve import hit_curve

    curve = hit_curve(traffic.workload, block_size)
    per_token = traffic.bytes_per_token
    if asked.out is not None:
        from sim.report.figures.hit_rates import draw_hit_rates
        from sim.report.figures.render import save_picture

        save_picture(draw_hit_rates(curve, per_token).picture, asked.out)
    if named is not None:
        found = {**named, **curve_json(curve, per_token)}
        print_line(json.dumps(found, indent=2, allow_nan=False))
        return
    print_table(curve_table(curve, per_token))
    for line in curve_sentences(curve, per_token):
        print_line(line)


def _fit(
    traffic: _TrafficToWrite, block_size: int | None, named: Mapping[str, Any] | None, asked: _Asked
) -> None:
    """Write the statistics, and print how near what is drawn from them comes."""
    from sim.commands.output import print_line, print_table
    from sim.core.files import write_text
    from sim.tables.table import Column, Table, number_as
    from sim.workload.config import FittedConfig
    from sim.workload.fitted.compare import compared
    from sim.workload.fitted.fit import fit, shared_requests
    from sim.workload.kinds.build import build_workload
    from sim.workload.reuse.curve import hit_curve

    out = asked.fit
    assert out is not None  # noqa: S101 - the option has a value
    given = shared_requests(traffic.workload, block_size)
    write_text(out, f"{fit(given).model_dump_json(indent=1)}\n")
    config = FittedConfig(kind="fitted", path=str(out))
    built = build_workload(config, seed=0, base_dir=Path())
    size = given.block_size
    curves = hit_curve(traffic.workload, size), hit_curve(built, size)
    rows = list(compared(given, shared_requests(built, size), curves))
    if named is not None:
        figures = [{**row._asdict(), "off_pct": row.off_pct} for row in rows]
        print_line(json.dumps({**named, "figures": figures}, indent=2, allow_nan=False))
        return
    columns = [
        Column("figure", is_text=True),
        Column("traffic", to_text=number),
        Column("drawn", to_text=number),
        Column("off by %", to_text=lambda value: number_as("+.1f", value)),
    ]
    print_table(Table(columns, [[*row, row.off_pct] for row in rows]))
    print_line(f"workload: {{kind: fitted, path: {out}}} draws such requests.")


def _of_scenario(path: Path, overrides: Sequence[str]) -> _TrafficToWrite:
    from sim.scenario.build import located_errors
    from sim.scenario.kv_sizes import load_shapes, token_bytes
    from sim.scenario.load import load_scenario
    from sim.workload.kinds.build import build_workload

    loaded = load_scenario(path, overrides)
    scenario = loaded.scenario
    with located_errors(loaded):
        model, _ = load_shapes(scenario, loaded.base_dir)
        built = build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)
    return _TrafficToWrite(built, None if model is None else token_bytes(model))


def _of_trace(
    path: Path, trace: TraceFormat, overrides: Sequence[str], model: str | None
) -> _TrafficToWrite:
    from sim.scenario.kv_sizes import token_bytes
    from sim.scenario.load import load_trace
    from sim.workload.kinds.build import build_workload

    per_token = None
    if model is not None:
        from sim.latency.architectures.model_key import load_model_shape

        per_token = token_bytes(load_model_shape(model, Path()))
    loaded = load_trace(path, trace, overrides)
    built = build_workload(loaded.workload, seed=loaded.seed, base_dir=Path())
    return _TrafficToWrite(built, per_token)


def _flat(values: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    """A row for each number of the statistics: its name in words, and its value."""
    for name, value in values.items():
        words = name.replace("_pct", " %").replace("_s", " s").replace("_", " ")
        if isinstance(value, dict):
            for statistic, part in value.items():
                yield f"{words} {statistic}", part
        else:
            yield words, value
