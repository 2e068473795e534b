"""The stages of the suite, most valuable first."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SCENARIOS = Path(__file__).parents[2] / "scenarios"

# Settings, as variants of `realrun runs`. The simulator should rank them as the real runs do.
_SETTINGS = {
    "fcfs": "",
    "lpm": "scheduler.schedule_policy=lpm",
    "lpm-fairness": "scheduler.schedule_policy=lpm"
    " scheduler.fairness.kind=fairness_t scheduler.fairness.t_ms=100",
    "lpm-mixed": "scheduler.schedule_policy=lpm scheduler.enable_mixed_chunk=true",
    "lpm-no-overlap": "scheduler.schedule_policy=lpm scheduler.disable_overlap_schedule=true",
    "dfs-weight": "scheduler.schedule_policy=dfs-weight",
}
# The settings of the published packing experiment (docs/explanation/studies.md).
_PACKING = {
    "fifo": "scheduler.admission=null",
    "pack": "scheduler.admission.kind=pack",
}
# Size limit of a bundle, because files above 16 MiB may be hard to transfer.
_MAX_MIB = "15"


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of `realrun`, which runs in a separate process.

    Attributes:
        name: the stage's name.
        weight: its share of the time, relative to the other stages.
        arguments: the command's arguments.
        file: the file of its results, for commands with --out and --budget-s; None for commands
            that only print.
        is_limited: whether its time counts. The time to compile kernels does not.
    """

    name: str
    weight: float
    arguments: tuple[str, ...]
    file: str | None = None
    is_limited: bool = True


def _runs(
    scenario: str, load: str, *, rate_rps: int, seconds: int, repeats: int = 2
) -> tuple[str, ...]:
    """Arguments that serve a scenario for about `seconds` seconds at a rate, in all settings."""
    rate = (f"workload.arrivals.rate_rps={rate_rps}", f"workload.num_requests={rate_rps * seconds}")
    sets = [part for change in rate for part in ("--set", change)]
    variants = _variants({f"{load}-{name}": changes for name, changes in _SETTINGS.items()})
    path = str(_SCENARIOS / "calibration" / f"{scenario}.yaml")
    limits = ("--repeats", str(repeats), "--max-mib", _MAX_MIB)
    return ("runs", path, *sets, *variants, *limits)


def _packing() -> tuple[str, ...]:
    """Arguments that serve the packing experiment with both settings."""
    path = str(_SCENARIOS / "studies" / "pack-hol.yaml")
    return ("runs", path, *_variants(_PACKING), "--max-mib", _MAX_MIB)


def _variants(settings: Mapping[str, str]) -> list[str]:
    return [
        part
        for name, changes in settings.items()
        for part in ("--variant", f"{name} {changes}".strip())
    ]


def _kernels(*models: str) -> tuple[str, ...]:
    return ("kernels", *(part for model in models for part in ("--model", model)))


def _profile(model: str, *limits: str) -> tuple[str, ...]:
    return ("profile", "--model", model, "--repeats", "3", *limits)


# The weights are the seconds that a stage needs on an H100. A second call continues profiles and
# runs where they stopped.
GPU_STAGES = (
    Stage("kernels", 0, _kernels("gpt2", "qwen2.5-0.5b", "llama-3.1-8b"), is_limited=False),
    Stage("check-tiny", 20, ("check", "--model", "tiny")),
    Stage("check-gpt2", 20, ("check", "--model", "gpt2")),
    Stage("profile-gpt2", 30, _profile("gpt2"), "profile-gpt2.jsonl.gz"),
    Stage(
        "profile-qwen2.5-0.5b",
        75,
        _profile("qwen2.5-0.5b", "--max-context", "16384"),
        "profile-qwen2.5-0.5b.jsonl.gz",
    ),
    Stage(
        "profile-llama-3.1-8b",
        150,
        _profile("llama-3.1-8b", "--max-context", "16384"),
        "profile-llama-3.1-8b.jsonl.gz",
    ),
    Stage(
        "runs-llama-3.1-8b-high",
        260,
        _runs("llama-3.1-8b", "high", rate_rps=28, seconds=14),
        "runs-llama-3.1-8b-high.tar",
    ),
    Stage(
        "runs-llama-3.1-8b-half",
        130,
        _runs("llama-3.1-8b", "half", rate_rps=14, seconds=14, repeats=1),
        "runs-llama-3.1-8b-half.tar",
    ),
    Stage(
        "runs-qwen2.5-0.5b-high",
        215,
        _runs("qwen2.5-0.5b", "high", rate_rps=75, seconds=16),
        "runs-qwen2.5-0.5b-high.tar",
    ),
    Stage("runs-gpt2-pack", 20, _packing(), "runs-gpt2-pack.tar"),
)

# Small stages, to try the suite without a GPU.
TINY_STAGES = (
    Stage("check-tiny", 1, ("check", "--model", "tiny")),
    Stage(
        "profile-tiny",
        2,
        _profile("tiny", "--max-context", "512", "--max-rows", "16"),
        "profile-tiny.jsonl.gz",
    ),
    Stage("runs-tiny", 3, _runs("tiny", "half", rate_rps=10, seconds=3), "runs-tiny.tar"),
)
