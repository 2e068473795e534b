"""What is attacked: files that the project reads, and the commands that read them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from fuzz import files, mutate
from fuzz.logs import POWER_S
from fuzz.scenarios import SCENARIOS
from fuzz.server_logs import damaged_log
from fuzz.traces import TRACES, scenario_of

Mutation = Callable[[bytes, Random], bytes]
# Of files whose bytes are changed.
_EMPTY_SHARE = 0.08


@dataclass(frozen=True, slots=True)
class FuzzCase:
    """One file that is changed, the files beside it, and commands.

    Attributes:
        name: of the case.
        target: the file that is changed, relative to the input's folder.
        mutation: how it is changed, apart from its bytes.
        commands: one is drawn; the first word is the program.
        weight: how often the case is drawn.
        own: whether the target is the user's own scenario, which may name code.
        group: what it attacks, in the table of what was done.
        bytes_share: how often its bytes alone are changed.
        twice: whether another process, with other hashes of texts, must give the same bytes.
    """

    name: str
    target: str
    mutation: Mutation
    commands: Sequence[str]
    weight: int = 2
    own: bool = False
    group: str = "files"
    bytes_share: float = 0.25
    twice: bool = False

    def changed(self, content: bytes, rng: Random) -> bytes:
        """The target's new content."""
        if rng.random() < self.bytes_share:
            return mutate.by_bytes(content, rng) if rng.random() > _EMPTY_SHARE else b""
        return self.mutation(content, rng)


_RUN = "simulate run {} --format json"
_SCENARIO = (
    _RUN,
    "simulate validate {}",
    "simulate workload {}",
    f"{_RUN} --check",
    f"{_RUN} --out out --decisions d.jsonl.gz --requests r.csv --perfetto p.json",
    f"{_RUN} --no-fast-forward",
)


def _of(target: str, commands: Sequence[str]) -> list[str]:
    return [command.replace("{}", target) for command in commands]


def file_cases() -> list[FuzzCase]:
    """Damaged files, which are those of `fuzz.files`."""
    scenarios = [
        FuzzCase(name, name, mutate.json_file, _of(name, _SCENARIO), 6, own=True)
        for name in SCENARIOS
    ]
    points = [
        FuzzCase(
            "points",
            "sweep/points/{point}",
            files.stored_point,
            ("simulate report sweep --out report", "simulate sweep sweep.yaml --out sweep"),
            4,
        ),
    ]
    return [
        *scenarios,
        FuzzCase(
            "sweep",
            "sweep.yaml",
            mutate.json_file,
            ("simulate sweep sweep.yaml --out s --jobs 1", "simulate validate sweep.yaml"),
            1,
            own=True,
        ),
        FuzzCase(
            "tune",
            "tune.yaml",
            mutate.json_file,
            ("simulate validate tune.yaml", "simulate validate tune.yaml"),
            2,
            own=True,
        ),
        FuzzCase(
            "accepted",
            "accepted.jsonl",
            mutate.json_lines,
            ("simulate run drafts.yaml --format json",),
        ),
        *(
            FuzzCase(
                f"trace {name}",
                trace.file,
                mutate.table if trace.file.endswith(".csv") else mutate.json_lines,
                (
                    f"simulate run {scenario_of(trace)} --format json",
                    f"simulate workload {scenario_of(trace)}",
                    f"simulate workload {trace.file}",
                    f"simulate workload {trace.file} --from {trace.format} --format json",
                ),
            )
            for name, trace in TRACES.items()
        ),
        *(
            FuzzCase(f"import {name}", target, mutation, _imports(source, name), 4)
            for name, (source, target, mutation) in files.RESULTS.items()
        ),
        *(
            FuzzCase(f"fit {name}", target, mutation, (f"calibrate fit {source} --out fitted",), 1)
            for name, (source, target, mutation) in files.RESULTS.items()
        ),
        *(
            FuzzCase(
                f"playground {what} {scenario}",
                name,
                mutation,
                (f"playground {scenario}.yaml {what} {name}",),
            )
            for scenario, what, name, mutation in (
                ("base", "link", "link.txt", mutate.link),
                ("base", "body", "body.json", mutate.json_file),
                ("base", "request", "request.txt", mutate.mutated_bytes),
                ("vllm", "link", "vllm-link.txt", mutate.link),
            )
        ),
        *(
            FuzzCase(
                f"server log {engine}",
                f"{engine}-server.log",
                damaged_log,
                _server_logs(f"{engine}-server.log"),
                6,
                group="server logs",
                bytes_share=0.05,
            )
            for engine in ("sglang", "vllm")
        ),
        FuzzCase(
            "measured",
            "measured.jsonl",
            mutate.json_lines,
            (
                "calibrate validate base.yaml measured.jsonl",
                "calibrate fit measured.jsonl --scenario serial.yaml -o fitted.json",
            ),
            3,
        ),
        FuzzCase(
            "timeseries",
            "timeseries.csv",
            mutate.table,
            ("calibrate validate base.yaml measured.jsonl --timeseries timeseries.csv",),
        ),
        FuzzCase(
            "decisions",
            "decisions.jsonl",
            mutate.json_lines,
            (
                "simulate compare decisions.jsonl base.yaml",
                "simulate compare other.jsonl decisions.jsonl",
                "simulate timeline decisions.jsonl --out t.html --perfetto t.json",
                "simulate run recorded.yaml --format json",
            ),
            4,
        ),
        FuzzCase(
            "run log",
            "run.jsonl",
            mutate.json_lines,
            (
                "calibrate validate example/tiny-cpu run.jsonl --any-fingerprint",
                "simulate compare run.jsonl served.yaml",
                "calibrate fit run.jsonl -o fitted.json",
            ),
            6,
        ),
        FuzzCase(
            "metrics",
            "metrics.txt",
            mutate.mutated_bytes,
            ("calibrate watch vllm.yaml --replay metrics.txt --window 1 --learn 3 --out out",),
            4,
            group="server logs",
        ),
        *(
            FuzzCase(
                f"power {name}",
                name,
                mutation,
                (
                    f"calibrate fit slow.jsonl --power {name} -o fitted.json",
                    f"calibrate fit slow.jsonl -o p.json --power {name} --power-offset -{POWER_S}",
                ),
                2,
            )
            for name, mutation in (
                ("power.csv", mutate.table),
                ("power.txt", mutate.mutated_bytes),
                ("power.prom", mutate.mutated_bytes),
            )
        ),
        *(
            FuzzCase(
                name, target, mutate.json_lines, (f"calibrate fit {target} -o fitted.json",), 3
            )
            for name, target in (("points log", "points.jsonl"), ("graphs log", "graphs.jsonl"))
        ),
        *(
            FuzzCase(
                name,
                f"{stem}.json",
                mutate.json_file,
                (
                    f"simulate run {scenario} --format json",
                    f"calibrate show {stem}.json",
                    f"calibrate validate {stem}.json run.jsonl --any-fingerprint",
                ),
                3,
            )
            for name, stem, scenario in (
                ("profile", "profile", "profiled.yaml"),
                ("profile with launches", "launched", "launched.yaml"),
            )
        ),
        FuzzCase(
            "host times", "host.json", mutate.json_file, ("simulate run hosted.yaml --format json",)
        ),
        FuzzCase(
            "model",
            "model/config.json",
            mutate.json_file,
            ("simulate run modelled.yaml --format json", "simulate validate modelled.yaml"),
            4,
        ),
        FuzzCase(
            "splitwise",
            "tables/perf_model.csv",
            mutate.table,
            ("simulate run splitwise.yaml --format json",),
            3,
        ),
        *(
            FuzzCase(
                f"run {name}", f"run/{name}", mutation, ("simulate report run --out report",), 2
            )
            for name, mutation in files.RUN_FILES.items()
        ),
        *points,
        FuzzCase(
            "results",
            "sweep/results.json",
            mutate.json_file,
            ("simulate report sweep --out report",),
            3,
        ),
        FuzzCase(
            "search",
            "tune/results.json",
            mutate.json_file,
            ("simulate report tune --out report",),
            3,
        ),
        FuzzCase(
            "search for deployments",
            "plan/results.json",
            mutate.json_file,
            ("simulate report plan --out report",),
            3,
        ),
    ]


def _imports(source: str, name: str) -> tuple[str, ...]:
    form = name.split(maxsplit=1)[0]
    imported = f"simulate import {source} --out imported"
    return (
        imported,
        f"{imported} --from {form} && simulate run imported/scenario.yaml --format json",
        f"{imported} --template base.yaml && simulate validate imported/scenario.yaml",
    )


def _server_logs(source: str) -> tuple[str, ...]:
    imported = f"simulate import {source} --hardware h100_sxm --out imported"
    return (
        imported,
        f"{imported} --from server-log --model llama-3.1-8b",
        f"{imported} --results vllm.json",
        f"{imported} --model llama-3.1-8b && simulate run imported/scenario.yaml --format json",
    )
