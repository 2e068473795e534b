"""Run logs as samples to fit: what ran, and how long device and host took."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calibrate.fingerprints import first_difference
from calibrate.step_times import Line, is_launch_bound, measured_times
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.families import DEFAULT_FAMILY, FAMILIES
from sim.latency.features import StepFeatures, line_features
from sim.latency.profile.format import Scheduling, Source
from sim.runlog.run_log_file import RecordedRun, read_run_log
from sim.user.objects import names_class

_POINT_HOST_PARTS = ("plan_ns", "launch_ns", "read_back_ns")
# The largest amount of anything in a profile.
_MOST_TOKENS = 1_000_000_000
# Decode steps whose mean contexts differ by less than this share count as one composition.
_LIKENESS = 0.05


class Sample(NamedTuple):
    """One measured step, or the median of one measured point.

    Attributes:
        step: its features.
        graph: rows of the decode graph that ran it; 0: it ran eagerly.
        device_ns: how long the device worked on it.
        host_ns: its host time; None: not known.
        scheduling: the scheduling during which the host time was measured: normal, overlap or
            "not measured".
        max_decode_context: longest context of its decode rows; None: not known.
        launch_ns: how long the host launched its kernels; None: it replayed a graph, or not known.
        is_launch_bound: the device may have waited for the launch, so that `device_ns` is only an
            upper limit of what the device needs.
        log: number of its log.
    """

    step: StepFeatures
    graph: int
    device_ns: float
    host_ns: float | None
    scheduling: Scheduling
    max_decode_context: int | None
    launch_ns: float | None = None
    is_launch_bound: bool = False
    log: int = 0

    def composition(self) -> tuple[float, ...]:
        """A key that is equal for similar samples: a fit to one has in effect seen the others."""
        step = self.step
        if step.mode is not ForwardMode.DECODE:
            return step.mode, *step.totals
        mean = step.num_decode_context_tokens / step.num_decode_rows
        return step.mode, step.num_decode_rows, int(math.log(max(mean, 1)) / _LIKENESS)


@dataclass(frozen=True, slots=True)
class Dataset:
    """All samples of logs from one device with one set of libraries and one model.

    Attributes:
        fingerprint: device, libraries and model, the same in all logs.
        sources: the logs.
        samples: by mode, in the order of the logs; only modes that occur.
        graph_sizes: rows of the decode graphs, ascending.
        knows_graphs: whether a log says for which rows graphs were captured. If none does,
            `graph_sizes` has only those that ran.
    """

    fingerprint: Mapping[str, Any]
    sources: tuple[Source, ...]
    samples: Mapping[ForwardMode, tuple[Sample, ...]]
    graph_sizes: tuple[int, ...]
    knows_graphs: bool


def load_dataset(paths: Sequence[Path]) -> Dataset:
    """Read run logs and collect everything that can be fitted.

    Raises:
        InputError: a log cannot be read, a time is no number, nothing was measured, or the logs are
            of different devices, libraries or models.
    """
    logs = [read_run_log(path) for path in paths]
    for log in logs[1:]:
        _check_same_fingerprint(logs[0], log)
    samples: dict[ForwardMode, list[Sample]] = {}
    for number, log in enumerate(logs):
        for sample in _samples(log):
            samples.setdefault(sample.step.mode, []).append(sample._replace(log=number))
    if not samples:
        names = ", ".join(str(path) for path in paths)
        raise InputError(f"{names}: neither steps nor points to fit")
    return Dataset(
        fingerprint=logs[0].fingerprint,
        sources=tuple(
            Source(
                file=log.path.name,
                source=log.meta["source"],
                points=len(log.points),
                steps=len(log.steps),
            )
            for log in logs
        ),
        samples={mode: tuple(samples[mode]) for mode in sorted(samples)},
        graph_sizes=_graph_sizes(logs, samples.get(ForwardMode.DECODE, ())),
        knows_graphs=any(_captured(log) is not None for log in logs),
    )


def _graph_sizes(logs: Sequence[RecordedRun], decodes: Sequence[Sample]) -> tuple[int, ...]:
    """The captured sizes of all logs. Of a log that does not say them, those that ran."""
    sizes = {sample.graph for sample in decodes if sample.graph}
    for log in logs:
        sizes.update(_captured(log) or ())
    return tuple(sorted(sizes))


def _captured(log: RecordedRun) -> tuple[int, ...] | None:
    """The rows that the log says graphs were captured for; None: it does not say."""
    sizes = log.meta.get("graph_sizes")
    if sizes is None:
        return None
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise InputError(f"{log.path}: meta.graph_sizes: must be a list of numbers of rows")
    return tuple(sizes)


def _check_same_fingerprint(first: RecordedRun, other: RecordedRun) -> None:
    difference = first_difference(first.fingerprint, other.fingerprint)
    if difference is not None:
        key, ours, theirs = difference
        raise InputError(
            f"{other.path}: fingerprint.{key}: {theirs!r} is not the {ours!r} of {first.path}:"
            " one profile describes one device, its libraries and one model"
        )


def _samples(log: RecordedRun) -> Iterator[Sample]:
    overlaps = _overlaps(log.path, log.meta.get("scheduler", {}))
    times = measured_times(log.steps, overlaps=overlaps)
    for number, (line, time) in enumerate(zip(log.steps, times, strict=True)):
        where = f"{log.path}: step {number}"
        if line["t_end_ns"] <= line["t_start_ns"]:
            raise InputError(f"{where}: t_end_ns: is not after t_start_ns")
        yield _sample(
            line,
            where,
            time.device_ns,
            time.host_ns,
            "overlap" if overlaps else "normal",
            is_launch_bound=time.is_launch_bound,
        )
    # Logs that do not name the graphs are of a time when launches were not hidden from the device.
    hides_launch = _captured(log) is not None
    for number, line in enumerate(log.points):
        where = f"{log.path}: point {number}"
        device_ns = float(line["forward_ns"])
        known = all(part in line for part in _POINT_HOST_PARTS)
        point_host_ns = _sum_of_parts(line, _POINT_HOST_PARTS) if known else None
        is_bound = not (hides_launch or line.get("padded_rows")) and is_launch_bound(
            device_ns, line.get("launch_ns", 0)
        )
        yield _sample(
            line, where, device_ns, point_host_ns, "not measured", is_launch_bound=is_bound
        )


def _overlaps(path: Path, scheduler: Mapping[str, Any]) -> bool:
    """Whether a log's settings overlap scheduling: a step is decided while the one before runs."""
    if names_class(scheduler.get("family")):
        overlaps = scheduler.get("overlaps")
        if not isinstance(overlaps, bool):
            raise InputError(f"{path}: meta.scheduler.overlaps: must be true or false")
        return overlaps
    family = FAMILIES.get(str(scheduler.get("family")), FAMILIES[DEFAULT_FAMILY])
    return family.overlaps(scheduler)


def _sum_of_parts(line: Line, parts: Sequence[str]) -> float:
    """The sum of the parts, without an eager launch, which is no host time."""
    is_graph = bool(line.get("padded_rows"))
    return float(sum(line[part] for part in parts if is_graph or part != "launch_ns"))


def _sample(
    line: Line,
    where: str,
    device_ns: float,
    host_ns: float | None,
    scheduling: Scheduling,
    *,
    is_launch_bound: bool,
) -> Sample:
    step = line_features(line)
    if step.num_draft_tokens:
        raise InputError(f"{where}: drafts: steps that verify draft tokens cannot be fitted")
    if step.num_decode_context_tokens < 0:
        raise InputError(f"{where}: ctx: is less than the tokens of prefill")
    if (step.num_prefill_rows, step.num_decode_rows) == (0, 0):
        raise InputError(f"{where}: prefill, n_decode: a step must have rows")
    if step.num_context_tokens > _MOST_TOKENS:
        raise InputError(f"{where}: ctx: must be at most {_MOST_TOKENS:,}")
    graph = line.get("padded_rows") or 0
    if graph:
        step = step.with_single_tokens_as_decodes()
    return Sample(
        step=step,
        graph=graph,
        device_ns=device_ns,
        host_ns=host_ns,
        scheduling=scheduling,
        max_decode_context=line.get("max_decode_ctx") or None,
        launch_ns=None if graph else line.get("launch_ns"),
        is_launch_bound=is_launch_bound,
    )
