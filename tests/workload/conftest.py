"""Workloads built from sections of a scenario, and requests as plain data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from sim.core.errors import InputError
from sim.workload.config import WorkloadConfig
from sim.workload.kinds.build import build_workload
from sim.workload.workload import Workload

ADAPTER = TypeAdapter(WorkloadConfig)


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Workload]:
    """Build the workload of a section; trace paths are relative to `tmp_path`."""

    def from_section(section: dict[str, Any], seed: int = 0) -> Workload:
        config = ADAPTER.validate_python(section)
        return build_workload(config, seed=seed, base_dir=tmp_path)

    return from_section


@pytest.fixture
def synthetic(build: Callable[..., Workload]) -> Callable[..., Workload]:
    """Build a small synthetic workload; options replace its keys."""

    def with_options(seed: int = 0, **options: Any) -> Workload:
        section = {
            "kind": "synthetic",
            "num_requests": 1000,
            "arrivals": {"kind": "poisson", "rate_rps": 10},
            "prompt_tokens": {"kind": "constant", "value": 100},
            "output_tokens": {"kind": "constant", "value": 10},
        }
        return build(section | options, seed)

    return with_options


@pytest.fixture
def trace(tmp_path: Path, build: Callable[..., Workload]) -> Callable[..., Workload]:
    """Write a trace file from rows (objects, or text, or bytes), and build its workload."""

    def from_rows(format_: str, rows: Any, **options: Any) -> Workload:
        if not isinstance(rows, bytes):
            lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
            rows = "".join(f"{line}\n" for line in lines).encode()
        (tmp_path / "t").write_bytes(rows)
        return build({"kind": "trace", "format": format_, "path": "t", **options})

    return from_rows


@pytest.fixture
def error_of(tmp_path: Path, trace: Callable[..., Workload]) -> Callable[..., str]:
    """The error line of a bad trace, with the file's name in place of its path."""

    def line(format_: str, rows: Any, **options: Any) -> str:
        with pytest.raises(InputError) as caught:
            trace(format_, rows, **options)
        message = str(caught.value)
        assert "\n" not in message
        return message.removeprefix(f"{tmp_path}/")

    return line


@pytest.fixture
def facts() -> Callable[[Workload], list[Any]]:
    """Everything about all requests as comparable data: ids instead of prompts."""

    def of_request(request: Any) -> tuple[Any, ...]:
        spec, script = request.spec, request.script
        return (
            *(spec.rid, spec.arrival_ns, tuple(spec.prompt.token_ids().tolist())),
            *(spec.max_new_tokens, spec.priority, spec.ignore_eos),
            *(spec.predicted_output_tokens, spec.tenant, script.num_tokens, script.seed),
        )

    def of_workload(workload: Workload) -> list[Any]:
        turns = [
            [(turn.think_ns, of_request(turn.request)) for turn in client]
            for client in workload.clients
        ]
        return [[of_request(request) for request in workload.arrivals()], turns]

    return of_workload
