"""The latency profile on disk: one JSON file, described in docs/explanation/profile.md."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, ValidationError, model_validator

from sim.core.batch import ForwardMode
from sim.core.errors import InputError, KeyPath, unknown_name
from sim.core.files import located
from sim.core.packed import STDIN, parse_json_object, read_text
from sim.latency.profile.quantities import MODE_TERMS, ModeTerms
from sim.metrics.power import AMOUNTS, ServerPower
from sim.validation import WholeModel

# Version 1 has no `launch`.
SCHEMA_VERSION: Literal[2] = 2
_SCHEMA_VERSIONS = (1, SCHEMA_VERSION)

ModeName = Literal["extend", "decode", "mixed"]
Scheduling = Literal["normal", "overlap", "not measured"]
MODE_NAMES: Mapping[ForwardMode, ModeName] = {
    ForwardMode.EXTEND: "extend",
    ForwardMode.DECODE: "decode",
    ForwardMode.MIXED: "mixed",
}
# With these bounds no step's time overflows 64-bit nanoseconds: a coefficient is at most a minute
# for each unit. The bound of amounts is far above any real amount.
Coefficient = Annotated[float, Field(ge=0, le=6e10)]
Amount = Annotated[float, Field(ge=0, le=1e9)]
Factor = Annotated[float, Field(gt=0, le=1e3)]
Count = Annotated[int, Field(ge=0)]


class Term(WholeModel):
    """A term of a sum: `ns` for every unit by which a quantity exceeds `knee`."""

    term: str
    knee: Amount = 0.0
    ns: Coefficient


class CorrectionAxis(WholeModel):
    """Knots of a table along one quantity, rising."""

    quantity: str
    knots: Annotated[tuple[Amount, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_sorted(self) -> Self:
        if any(b <= a for a, b in pairwise(self.knots)):
            raise ValueError(f"the knots of {self.quantity} must rise from one to the next")
        return self


class Correction(WholeModel):
    """Factors that correct the sum of the terms, interpolated linearly between their knots."""

    axes: tuple[CorrectionAxis, CorrectionAxis]
    factors: tuple[tuple[Factor, ...], ...]

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        rows, columns = (len(axis.knots) for axis in self.axes)
        if [len(row) for row in self.factors] != [columns] * rows:
            raise ValueError(f"factors must be {rows} rows of {columns}, one for each knot")
        return self


class Errors(WholeModel):
    """Errors of predictions for points that the fit did not see, in percent of what was measured.

    Attributes:
        mape_pct, p50_pct, p95_pct, max_pct: mean, percentiles and maximum of the absolute error.
        total_pct: error of the sum over all points; positive if the prediction is too long.
        outliers: points so far off that the fit limited their weight. The errors include them.
    """

    points: Count
    mape_pct: float
    p50_pct: float
    p95_pct: float
    max_pct: float
    total_pct: float
    outliers: Count


class Range(WholeModel):
    """The smallest and the largest measured value."""

    low: Amount
    high: Amount


class DeviceModel(WholeModel):
    """Device time of one mode, a sum of terms times a correction, and its measured ranges."""

    range: dict[str, Range]
    terms: Annotated[tuple[Term, ...], Field(min_length=1)]
    correction: Correction | None
    errors: Errors


class FittedTerms(WholeModel):
    """Host time of one mode, or launch time of its steps that run without a graph."""

    terms: tuple[Term, ...]
    errors: Errors


class LeftOut(WholeModel):
    """Errors of a fit of one mode's device times on what was left out of it.

    Attributes:
        what: the name of a log, or a quantity and the limit above which samples were left out.
    """

    mode: ModeName
    what: str
    errors: Errors


class HostModel(WholeModel):
    """Host time under one way of scheduling.

    `not measured`: no server was scheduling; host times are those of the parts around a forward
    pass, measured alone.
    """

    scheduling: Scheduling
    modes: dict[ModeName, FittedTerms]


class Source(WholeModel):
    """A log that the profile was fitted to, and how much was taken from it."""

    file: str
    source: str
    points: Count
    steps: Count


class ContextSpread(WholeModel):
    """How far the ratio of the longest to the mean decode context explains the fit's residuals."""

    points: Count
    correlation: float
    variance_pct: float


Watts = Annotated[float, Field(ge=0, le=1e9)]


class Power(WholeModel):
    """Power of a server's GPUs, all together, and what it was fitted to.

    Attributes:
        gpus: how many GPUs it is of.
        idle_w, limit_w, joules: see `sim.metrics.power.ServerPower`.
        idle_measured: the server was seen without a step; otherwise `idle_w` is the lowest reading.
        windows, window_s: to how many stretches of time it was fitted, and how long each was.
        clock_mhz: of the SMs during steps; None: not in the readings.
        errors: of the watts of windows that the fit did not see.
    """

    gpus: Annotated[int, Field(ge=1)]
    idle_w: Watts
    limit_w: Watts
    joules: Annotated[dict[str, Watts], Field(min_length=1)]
    idle_measured: bool
    sources: tuple[str, ...]
    windows: Count
    window_s: Amount
    decode_rows: Range
    clock_mhz: Range | None
    errors: Errors

    @model_validator(mode="after")
    def _check_amounts(self) -> Self:
        for name in self.joules:
            if name not in AMOUNTS:
                raise ValueError(f"joules: {unknown_name('amount', name, AMOUNTS)}")
        return self

    def of_server(self) -> ServerPower:
        """What a run's power is computed from."""
        return ServerPower(self.idle_w, self.limit_w, self.joules)


class LatencyProfile(WholeModel):
    """The content of a profile file."""

    schema_version: Literal[1, 2]
    name: Annotated[str, Field(min_length=1)]
    label: str
    fingerprint: dict[str, JsonValue]
    model: str
    created_from: tuple[Source, ...]
    graph_sizes: tuple[Annotated[int, Field(ge=1)], ...]
    modes: Annotated[dict[ModeName, DeviceModel], Field(min_length=1)]
    host: tuple[HostModel, ...]
    launch: dict[ModeName, FittedTerms] = Field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    decode_spread: ContextSpread | None
    power: Power | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(b <= a for a, b in pairwise(self.graph_sizes)):
            raise ValueError("graph_sizes: must rise from one to the next")
        for name, device in self.modes.items():
            _check_device(f"modes.{name}", device, MODE_TERMS[mode_of(name)])
            if not any(name in host.modes for host in self.host):
                raise ValueError(f"host: has no times for {name} steps, but modes has")
        for number, host in enumerate(self.host):
            for name, section in host.modes.items():
                allowed = MODE_TERMS[mode_of(name)].host
                _check_terms(f"host.{number}.modes.{name}", section.terms, allowed, knee="")
        for name, launch in self.launch.items():
            allowed = MODE_TERMS[mode_of(name)].launch
            _check_terms(f"launch.{name}", launch.terms, allowed, knee="")
        return self


def mode_of(name: str) -> ForwardMode:
    return ForwardMode[name.upper()]


def parse_profile(text: str, where: str) -> LatencyProfile:
    """Read the text of a profile; error messages begin with `where`."""
    try:
        data = parse_json_object(text)
    except InputError as error:
        raise InputError(f"{where}: {error.reason}") from None
    version = data.get("schema_version")
    if version not in _SCHEMA_VERSIONS or isinstance(version, bool):
        reason = f"{version!r} is not 1 or {SCHEMA_VERSION}, the versions this servetwin reads"
        if "schema_version" not in data:
            reason = "is missing"
        raise InputError(f"{where}: schema_version: {reason}")
    try:
        return LatencyProfile.model_validate_json(text)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_problem(error)}") from None


def profile_text(profile: LatencyProfile) -> str:
    """The text of a profile: the same profile always gives the same bytes."""
    unknown = {"power"} if profile.power is None else set()
    text = json.dumps(
        profile.model_dump(exclude=unknown), indent=2, allow_nan=False, ensure_ascii=False
    )
    # Put each list of numbers on one line, so that tables are readable. Strings never match,
    # because JSON strings have no line breaks.
    numbers = re.compile(r"\[\n\s+([-+0-9.e]+(?:,\n\s+[-+0-9.e]+)*)\n\s+\]")
    return numbers.sub(lambda found: "[" + " ".join(found[1].split()) + "]", text) + "\n"


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # Pydantic appends "[key]" if a key is wrong, not its value; the path shows the key already.
    path = ".".join(str(part) for part in problem["loc"] if part != "[key]")
    if problem["type"] == "missing":
        reason = "is missing"
    elif problem["type"] == "extra_forbidden":
        reason = "unknown key"
    else:
        reason = problem["msg"].removeprefix("Value error, ")
    return f"{path}: {reason}" if path else reason


def _check_device(where: str, device: DeviceModel, allowed: ModeTerms) -> None:
    _check_terms(where, device.terms, allowed.device, knee=allowed.knee)
    for name in allowed.ranges:
        if name not in device.range:
            raise ValueError(f"{where}.range: {name}: is missing")
    if device.correction is not None:
        axes = tuple(axis.quantity for axis in device.correction.axes)
        if axes not in allowed.axes:
            wanted = ", or ".join(" and ".join(pair) for pair in allowed.axes)
            raise ValueError(f"{where}.correction.axes: must be {wanted}, got {', '.join(axes)}")


def _check_terms(where: str, terms: tuple[Term, ...], allowed: tuple[str, ...], knee: str) -> None:
    for number, term in enumerate(terms):
        place = f"{where}.terms.{number}"
        if term.term not in allowed:
            raise ValueError(f"{place}.term: {unknown_name('term', term.term, allowed)}")
        if term.knee and term.term != knee:
            raise ValueError(f"{place}.knee: {term.term} cannot have one")


_SUFFIX = ".json"


def load_profile(
    name_or_path: str, base_dir: Path, *, key: KeyPath = ("latency", "path")
) -> LatencyProfile:
    """Load a profile: a file if the name ends in `.json`, otherwise a shipped one.

    A relative path starts from `base_dir`; `-` is standard input. Shipped profiles have names such
    as `example/tiny-cpu`. `key` is the scenario's key that has the name; empty: a command has it.
    """
    if name_or_path == str(STDIN):
        return read_profile(STDIN)
    if name_or_path.endswith(_SUFFIX):
        return read_profile(located(base_dir, name_or_path))
    shipped = shipped_profiles()
    if name_or_path not in shipped:
        reason = unknown_name("profile", name_or_path, shipped)
        reason = f"{reason}; the path of a file ends in {_SUFFIX}"
        raise InputError(reason, key=key)
    text = shipped[name_or_path].read_text(encoding="utf-8")
    return parse_profile(text, f"profile {name_or_path}")


def read_profile(path: Path) -> LatencyProfile:
    return parse_profile(read_text(path), str(path))


def shipped_profiles() -> Mapping[str, Traversable]:
    """The shipped profiles by name, such as `example/tiny-cpu`."""
    # They are data files of `calibrate`, which makes them. None of its code is imported here.
    folder = files("calibrate") / "profiles"
    return dict(sorted(_below(folder, ""))) if folder.is_dir() else {}


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry
