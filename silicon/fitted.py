"""How often intervals of fitted servers hold: `python -m silicon.fitted`.

Step times are fitted to one run of a server, or to several, as `calibrate fit` does it, with the
first half of each run's requests. Every other run of that server with the same settings is
simulated, and its measured means are held against the intervals. Prints the table of
docs/explanation/confidence.md; a fit takes about ten seconds, all of them half an hour.
"""

import math
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from calibrate.coefficients.coefficient import coefficients_of
from calibrate.coefficients.fit import fit_coefficients
from calibrate.coefficients.mean_step import mean_step
from calibrate.coefficients.prepare import PrepareOptions, prepare
from calibrate.coefficients.result_files import ResultFile, read_files
from calibrate.coefficients.runs import FitRun
from calibrate.coefficients.scenario import FitServerOptions
from calibrate.coefficients.trust import fitted_section
from calibrate.measured.compare import compare
from calibrate.measured.pairs import Selection, join
from calibrate.measured.twin import Twin
from calibrate.rebuild import rebuild
from silicon.page import table_of
from sim.confidence.intervals import MOST_DOUBLINGS, doublings, load_of, widened
from sim.core.arrays import Float64
from sim.metrics.summary import summarise
from sim.runlog.run_log_file import MeasuredRun
from sim.scenario.load import load_scenario_data
from sim.scenario.schema import BESIDE_THE_RUN
from sim.workload.results.model import ReadOptions

DATA = Path(__file__).parents[1] / "data"
_H100 = DATA / "measured" / "vllm-0.26-h100-llama-3.1-8b"
_H200 = DATA / "measured" / "vllm-0.26-h200-llama-3.1-8b"
_MOST_FITTED = 2
_LOGS = {
    "SGLang's rules, H200": "h200/runs-llama-3.1-8b-h*.tar",
    "SGLang's rules, H100": "h100/runs-llama-3.1-8b-h*.tar",
    "vLLM's rules, H200": "h200/runs-llama-3.1-8b-vllm.tar",
}
_COMMAND = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192"


class Server(NamedTuple):
    """A vLLM server that was measured: results of its loads, how it was launched, its GPU."""

    files: Sequence[Path]
    command: str
    hardware: str


VLLM = {
    "vLLM 0.26, H100": Server(
        (
            *(
                _H100 / load / "measured.jsonl.gz"
                for load in ("rate4", "rate12", "rate20", "clients64", "burst")
            ),
            _H100 / "bench.json.gz",
        ),
        _COMMAND,
        "h100_sxm",
    ),
    "vLLM 0.26, H200": Server(
        [_H200 / load / "measured.jsonl.gz" for load in ("rate12", "prefixes", "agents")],
        f"{_COMMAND} --num-gpu-blocks-override 2048",
        "h200_sxm",
    ),
}
_STEP_TIMES = ("step_s", "per_prefill_token_s", "per_decode_request_s", "per_context_token_s")
_METRICS = ("ttft", "tpot")
# Loads that differ by so few doublings are the same.
_NONE = 0.1


class Judged(NamedTuple):
    """A run that was not fitted, and the interval of its means.

    Attributes:
        num_fitted: runs that were.
        away: doublings of its load from theirs.
        errors: logarithms of measured over simulated means, of `_METRICS`.
        halves: half widths of the intervals; NaN: there is none.
    """

    num_fitted: int
    away: float
    errors: Float64
    halves: Float64


def judge_server(server: Server) -> Iterator[Judged]:
    """Fit a vLLM server to each of its results, and to each two, and judge the others."""
    for num in range(1, _MOST_FITTED + 1):
        for fitted in combinations(server.files, num):
            others = [path for path in server.files if path not in fitted]
            yield from judge_files(server, fitted, others)


def judge_files(server: Server, fitted: Sequence[Path], others: Sequence[Path]) -> Iterator[Judged]:
    """Fit a vLLM server to some results, and judge the others."""
    launched = FitServerOptions(
        kind="linear", template=None, server=server.command, hardware=server.hardware
    )
    with TemporaryDirectory() as folder:
        beside = Path(folder)
        options = PrepareOptions(server=launched, overrides=(), tries=())
        prepared = prepare(_read(fitted), options, beside=beside, out=beside / "out", say=_ignore)
        values = prepared.fit(_ignore).values

        def runs() -> Iterator[FitRun]:
            # Their traffic takes the place of that of the fitted runs, so it is written last.
            for file in _read(others):
                file.write_into(beside)
                yield file.run(prepared.draft.loaded, ())

        yield from judged_by(prepared.runs, values, runs())


def judge_logs(path: Path) -> Iterator[Judged]:
    """Judge the runs of a tar of run logs: NAMES of a load, settings and a number."""
    with TemporaryDirectory() as folder:
        for tar in sorted(path.parent.glob(path.name)):
            with tarfile.open(tar) as opened:
                opened.extractall(folder, filter="data")
        runs = {log.name: _run_of(log) for log in sorted(Path(folder).rglob("*.jsonl.gz"))}
        for names in _fits(sorted(runs)):
            same = [name for name in runs if _settings(name) == _settings(names[0])]
            fitted = [runs[name] for name in names]
            mean, built = mean_step(fitted), fitted[0].twin.built(())
            coefficients = coefficients_of(
                built.loaded, mean, overlaps=built.scheduler.overlaps, has_start=False
            )
            fit = fit_coefficients(fitted, coefficients, mean.seconds, _ignore)
            others = [runs[name] for name in same if name not in names]
            yield from judged_by(fitted, fit.values, others)


def _settings(name: str) -> str:
    """Of a log `LOAD-SETTINGS-NUMBER.jsonl.gz`."""
    return name.partition("-")[2].rpartition("-")[0]


def _fits(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The first run of each load and settings alone, and those of all loads together."""
    for settings in dict.fromkeys(map(_settings, names)):
        first = [name for name in names if _settings(name) == settings and "-1." in name]
        yield from ((name,) for name in first)
        if len(first) > 1:
            yield tuple(first)


def _run_of(path: Path) -> FitRun:
    """A run of a real server: its requests with their measured arrivals, and linear step times."""
    rebuilt = rebuild(path)
    requests, meta = rebuilt.log.requests, rebuilt.recorded.meta
    rows = [row for row, status in enumerate(requests.status) if status == "finished"]
    rows.sort(key=lambda row: int(requests.arrival_ns[row]))
    measured = MeasuredRun(
        [requests.rid[row] for row in rows],
        *(getattr(requests, name)[rows] for name in (
            "arrival_ns", "arrival_ns", "first_token_ns", "finish_ns", "prompt_tokens",
            "output_tokens",
        )),
    )  # fmt: skip
    left_out = {*BESIDE_THE_RUN, "host"}
    data = {key: value for key, value in meta["scenario"].items() if key not in left_out}
    data["latency"] = {"kind": "linear", **dict.fromkeys(_STEP_TIMES, 0.0)}
    scheduler = {key: value for key, value in data["scheduler"].items() if value is not None}
    scheduler.pop("mem_fraction_static", None)
    pool = {"max_total_tokens": meta["max_total_tokens"]}
    if scheduler.get("family") == "vllm":
        pool = {"num_gpu_blocks_override": meta["max_total_tokens"] // scheduler["block_size"]}
    data["scheduler"] = scheduler | pool
    loaded = load_scenario_data(data, name=path.name, base_dir=path.parent)
    return FitRun(path.name, measured, Twin(loaded, measured), len(measured) // 2)


def judged_by(
    fitted: Sequence[FitRun], values: Mapping[str, float], others: Iterable[FitRun]
) -> Iterator[Judged]:
    """Judge runs by the intervals of a server that was fitted to other runs."""
    logs = [run.simulate_all(values) for run in fitted]
    held_out = [compare(run.held_out(log)) for run, log in zip(fitted, logs, strict=True)]
    section = fitted_section(fitted, logs, held_out, {})
    for run in others:
        log = run.simulate_all(values)
        pairs = join(run.measured, log.requests, Selection())
        ours, theirs = pairs.measured.latencies_ms(), pairs.simulated.latencies_ms()
        summary = summarise(log)
        away = max(doublings(load, *section[name]) for name, load in load_of(summary).items())
        halves = {name: widened(section.get(name, math.nan), away) for name in _METRICS}
        if summary["saturated"]:
            halves["ttft"] = math.nan
        errors = [math.log(np.nanmean(ours[name]) / np.nanmean(theirs[name])) for name in _METRICS]
        yield Judged(len(fitted), away, np.array(errors), np.array(list(halves.values())))


def _read(paths: Sequence[Path]) -> list[ResultFile]:
    return read_files(paths, first=None, format_=None, read=ReadOptions(line=None))


def _ignore(_line: str) -> None:
    pass


def board(servers: Mapping[str, Sequence[Judged]]) -> str:
    """How often intervals hold, by how many runs were fitted and how far the load is."""
    lines = []
    for server, judged in servers.items():
        for is_several, words in ((False, "one"), (True, "several")):
            of_some = [one for one in judged if (one.num_fitted > 1) == is_several]
            parts = {
                "the same": [one for one in of_some if one.away <= _NONE],
                "others": [one for one in of_some if _NONE < one.away <= MOST_DOUBLINGS],
            }
            lines += [[server, words, load, *_cells(part)] for load, part in parts.items() if part]
        within = [one for one in judged if one.away <= MOST_DOUBLINGS]
        lines.append([server, "all", f"{len(judged) - len(within)} too far", *_cells(within)])
    return table_of(("server", "runs fitted", "load", "mean TTFT", "mean TPOT"), lines)


def _cells(part: Sequence[Judged]) -> Iterator[str]:
    """Of how many intervals the mean was inside, and the median of their half widths."""
    for place in range(len(_METRICS)):
        known = [one for one in part if not math.isnan(one.halves[place])]
        if not known:
            yield "-"
            continue
        held = sum(abs(one.errors[place]) <= one.halves[place] for one in known)
        width = np.median([math.expm1(one.halves[place]) for one in known])
        yield f"{held} of {len(known)} (±{100 * width:.0f}%)"


def main() -> None:
    servers = {name: list(judge_server(server)) for name, server in VLLM.items()}
    logs = {name: list(judge_logs(DATA / tars)) for name, tars in _LOGS.items()}
    sys.stdout.write(f"{board(servers | logs)}\n")


if __name__ == "__main__":
    main()
