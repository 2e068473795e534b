"""Readings of GPU power: CSV and `dmon` of nvidia-smi, and DCGM's table and metrics.

Times are seconds since 1970 as if the file's clock were UTC: most of these files do not name their
time zone, and the server's log beside them does not either. Formats and their sources:
docs/how-to/power.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError
from sim.core.packed import read_lines
from sim.server_metrics.scrape import read_sample, scraped_us

# No GPU draws a megawatt or runs at a terahertz, and no log is of the year 2500.
_MOST_W, _MOST_MHZ, _MOST_S = 1e6, 1e6, 1.7e10
_US_PER_S, _MS_PER_S = 1e6, 1e3
_NVIDIA_POWER = ("power.draw", "power.draw.average", "power.draw.instant")
_NVIDIA_CLOCK = ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr")
_NVIDIA_GPU = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial")
# Columns of `nvidia-smi dmon` and `dcgmi dmon`.
_DMON_POWER, _DMON_CLOCK = ("pwr", "power", "powerusage"), ("pclk", "smclk")
_POWER_METRIC, _CLOCK_METRIC = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK"
# Longer ones are not lines of readings.
_MOST_CHARACTERS, _MOST_GPUS = 4096, 1024
_HOW = (
    "no column of power and time: expected nvidia-smi --query-gpu=timestamp,index,power.draw"
    " --format=csv, nvidia-smi dmon -o DT, dcgmi dmon or DCGM's metrics (docs/how-to/power.md)"
)


class Reading(NamedTuple):
    """What one GPU drew; `clock_mhz` is of its SMs, None: not in the file."""

    at_s: float
    gpu: str
    watts: float
    clock_mhz: float | None


@dataclass(slots=True)
class Readings:
    """The readings of a file, in its order.

    Attributes:
        num_left_out: lines without a usable time or power.
        first_left_out: number of the first of them.
    """

    path: Path
    readings: list[Reading] = field(default_factory=list)
    num_left_out: int = 0
    first_left_out: int = 0

    def note(self) -> str | None:
        """What was left out, in words; None: nothing."""
        if not self.num_left_out:
            return None
        number = f"{self.num_left_out:,} line{'s' if self.num_left_out > 1 else ''}"
        return (
            f"{self.path.name}: {number} without a time and watts, first line {self.first_left_out}"
        )


def read_readings(path: Path) -> Readings:
    """Read a file of power readings.

    Raises:
        InputError: it cannot be read, has none of the known formats, or no usable reading.
    """
    found = Readings(path)
    lines = ((number, line.strip()) for number, line in enumerate(_texts(path), start=1))
    parse: Callable[[str], Sequence[Reading] | None] | None = None
    metrics = _Metrics()
    for number, line in lines:
        header = _header(line)
        if header is not None:
            parse = header
        elif metrics.takes(line):
            found.readings += metrics.take(line)
        elif line and not _is_units(line):
            readings = None if parse is None else parse(line)
            if readings is None:
                found.first_left_out = found.first_left_out or number
                found.num_left_out += 1
            else:
                found.readings += readings
    found.readings += metrics.end()
    if parse is None and not metrics.seen:
        raise InputError(f"{path}: {_HOW}")
    if not found.readings:
        raise InputError(f"{path}: has no reading with a time and watts")
    if len({one.gpu for one in found.readings}) > _MOST_GPUS:
        raise InputError(f"{path}: has readings of more than {_MOST_GPUS:,} GPUs")
    return found


def _texts(path: Path) -> Iterator[str]:
    for line in read_lines(path):
        yield line[:_MOST_CHARACTERS].decode("utf-8", errors="replace")


def _is_units(line: str) -> bool:
    """The second line of DCGM's header: `ID  W  MHz`, perhaps behind a time."""
    return "ID" in line.split() or "#" in line


def _header(line: str) -> Callable[[str], Sequence[Reading] | None] | None:
    """How to read the lines below a header; None: it is none, or lacks the power or the time."""
    if "," in line:
        names = [name.partition("[")[0].strip().lower() for name in line.split(",")]
        time, power = _place(names, ("timestamp",)), _place(names, _NVIDIA_POWER)
        if time is None or power is None:
            return None
        places = (time, _place(names, _NVIDIA_GPU), power, _place(names, _NVIDIA_CLOCK))
        return lambda row: _of_cells([cell.strip() for cell in row.split(",")], *places)
    # What writes a time before each line writes one before the header, too.
    names = line.partition("#")[2].lower().split()
    power, clock = _place(names, _DMON_POWER), _place(names, _DMON_CLOCK)
    if power is None:
        return None
    if names[0] == "entity":
        return lambda row: _of_dcgm(row.split(), len(names), power, clock)
    gpu, time, date = (_place(names, (name,)) for name in ("gpu", "time", "date"))
    if time is None or date is None:
        return None
    return lambda row: _of_dmon(row.split(), date, time, gpu, power, clock)


def _place(names: Sequence[str], wanted: Iterable[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _of_dmon(
    cells: Sequence[str], date: int, time: int, gpu: int | None, power: int, clock: int | None
) -> Sequence[Reading] | None:
    if max(date, time, power, gpu or 0, clock or 0) >= len(cells):
        return None
    return _of_cells([*cells, f"{cells[date]} {cells[time]}"], len(cells), gpu, power, clock)


def _of_dcgm(
    cells: Sequence[str], num_columns: int, power: int, clock: int | None
) -> Sequence[Reading] | None:
    """`1795736763.1 GPU 0  73.5  345`: an entity is two words, and a time stands before it."""
    if "GPU" not in cells or cells.index("GPU") == 0:
        return None
    first = cells.index("GPU")
    row = [" ".join(cells[:first]), *cells[first + 1 :]]
    if len(row) <= num_columns:
        return None
    return _of_cells(row, 0, 1, power + 1, None if clock is None else clock + 1)


def _of_cells(
    cells: Sequence[str], time: int, gpu: int | None, power: int, clock: int | None
) -> Sequence[Reading] | None:
    places = [place for place in (time, gpu, power, clock) if place is not None]
    if max(places) >= len(cells):
        return None
    at_s, watts = _seconds(cells[time]), _amount(cells[power], _MOST_W)
    if at_s is None or watts is None:
        return None
    name = "0" if gpu is None else cells[gpu]
    return [Reading(at_s, name, watts, None if clock is None else _amount(cells[clock], _MOST_MHZ))]


def _amount(text: str, most: float) -> float | None:
    """`73.97 W` or `73.97`; None for `[N/A]`, and for numbers that are none."""
    try:
        value = float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return None
    return value if isfinite(value) and 0 <= value <= most else None


_STAMPS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y%m%d %H:%M:%S")


def _seconds(text: str) -> float | None:
    """Unix time, an ISO 8601 time without its zone, or one of nvidia-smi's."""
    number = _amount(text, _MOST_S)
    if number is not None and " " not in text.strip():
        return number
    for form in _STAMPS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


class _Metrics:
    """DCGM's metrics as Prometheus reads them, one scrape after the other.

    A scrape has its time in a line `# scraped MICROSECONDS` before it, or each value has its own
    time in milliseconds, as Prometheus' text format allows.
    """

    def __init__(self) -> None:
        self.seen = False
        self._scraped_s: float | None = None
        self._watts: dict[str, tuple[float, float]] = {}
        self._clocks: dict[str, float] = {}

    def takes(self, line: str) -> bool:
        return line.startswith("DCGM_FI_") or scraped_us(line) is not None

    def take(self, line: str) -> Sequence[Reading]:
        """The readings of the scrape before, if this line begins another."""
        if (at_us := scraped_us(line)) is not None:
            self._scraped_s = at_us / _US_PER_S
            return self.end()
        named = read_sample(line, (_POWER_METRIC, _CLOCK_METRIC))
        if named is None or "gpu" not in named[1].labels:
            return ()
        self.seen = True
        name, (labels, value, at_ms) = named
        gpu, at_s = labels["gpu"], self._scraped_s if at_ms is None else at_ms / _MS_PER_S
        if at_s is None or not (0 <= at_s <= _MOST_S and 0 <= value <= _MOST_W):
            return ()
        is_power = name == _POWER_METRIC
        done = self.end() if gpu in (self._watts if is_power else self._clocks) else ()
        if is_power:
            self._watts[gpu] = at_s, value
        else:
            self._clocks[gpu] = value
        return done

    def end(self) -> Sequence[Reading]:
        watts, clocks = self._watts, self._clocks
        self._watts, self._clocks = {}, {}
        return [Reading(at_s, gpu, value, clocks.get(gpu)) for gpu, (at_s, value) in watts.items()]


def gpus_of(readings: Iterable[Reading]) -> Mapping[str, list[Reading]]:
    """The readings of each GPU, in order of time."""
    found: dict[str, list[Reading]] = {}
    for reading in readings:
        found.setdefault(reading.gpu, []).append(reading)
    return {gpu: sorted(ones, key=_at_s) for gpu, ones in found.items()}


def _at_s(reading: Reading) -> float:
    return reading.at_s
