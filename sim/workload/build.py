"""From a scenario's `workload:` section to the workload it describes."""

from pathlib import Path

from sim.user.named_class import UserClass
from sim.workload.bench_config import BenchConfig
from sim.workload.config import (
    ClientsConfig,
    MixConfig,
    SessionsConfig,
    SyntheticConfig,
    TraceConfig,
    UnmixedConfig,
    WorkloadConfig,
)
from sim.workload.context import BuildContext
from sim.workload.rng import RandomStreams, TokenStreams
from sim.workload.traces.read import TraceReader, read_trace
from sim.workload.workload import Workload


def build_workload(
    config: WorkloadConfig,
    *,
    seed: int,
    base_dir: Path,
    read_trace: TraceReader = read_trace,
) -> Workload:
    """Build the workload. All reading, drawing and checking happens here, before the run.

    Paths of traces are relative to `base_dir`. Sweeps pass a `read_trace` that caches rows.

    Raises:
        InputError: a trace file is bad (the error names the line), or a drawn size is too large
            (the error names the key).
    """
    context = BuildContext(
        ("workload",), base_dir, RandomStreams(seed), TokenStreams(), read_trace=read_trace
    )
    if isinstance(config, MixConfig):
        from sim.workload.composed import mixed

        return mixed(_build_parts(config, context))
    return _build(config, context)


def _build_parts(config: MixConfig, context: BuildContext) -> list[Workload]:
    from sim.workload.composed import of_tenant

    parts: list[Workload] = []
    for index, part in enumerate(config.parts):
        part_context = BuildContext(
            key=(*context.key, "parts", index, "workload"),
            base_dir=context.base_dir,
            random=context.random.scoped(f"tenant {part.tenant}"),
            streams=context.streams,
            mixed=True,
            read_trace=context.read_trace,
        )
        parts.append(of_tenant(part.tenant, _build(part.workload, part_context)))
    return parts


def _build(
    config: UnmixedConfig | BenchConfig,
    context: BuildContext,
) -> Workload:
    match config:
        case TraceConfig():
            from sim.workload.recorded import build_trace

            return build_trace(config, context)
        case SyntheticConfig():
            from sim.workload.synthetic import build_synthetic

            return build_synthetic(config, context)
        case SessionsConfig():
            from sim.workload.synthetic import build_sessions

            return build_sessions(config, context)
        case ClientsConfig():
            from sim.workload.synthetic import build_clients

            return build_clients(config, context)
        case BenchConfig():
            from sim.workload.bench.build import build_bench

            return build_bench(config, context)
        case UserClass():
            from sim.workload.user_workload import build_user_workload

            return build_user_workload(config, context)
