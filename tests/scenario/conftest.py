"""A small valid scenario, which tests make invalid, and the error line that follows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.scenario.load import load_scenario
from tests.support.serve import LINEAR_LATENCY

VALID = (
    f"name: study\nseed: 3\n{LINEAR_LATENCY}"
    """\
workload:
  kind: synthetic
  num_requests: 5
  arrivals: {kind: poisson, rate_rps: 10}
  prompt_tokens: {kind: constant, value: 100}
  output_tokens: {kind: constant, value: 10}
scheduler:
  page_size: 16
  max_total_tokens: 4096
  chunked_prefill_size: 512
"""
)


@pytest.fixture
def valid_text() -> str:
    return VALID


@pytest.fixture
def error_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write `study.yaml`, load it with options, and return the error line."""

    def load_and_catch(content: str | bytes, *overrides: str) -> str:
        monkeypatch.chdir(tmp_path)
        path = Path("study.yaml")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InputError) as caught:
            load_scenario(path, overrides)
        return str(caught.value)

    return load_and_catch
