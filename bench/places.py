"""The folders and files of the benchmarks."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SCENARIOS = REPOSITORY / "bench" / "scenarios"
OUT = REPOSITORY / "out" / "bench"
INPUTS = OUT / "inputs"
PEERS = REPOSITORY / ".peers"
TRACE = (
    REPOSITORY.parent / "shared" / "traces" / "mooncake" / "conversation_trace.first-40min.jsonl.gz"
)
