"""Readers of measured results, which say how the requests of a run were sent and served.

This module describes the formats. It imports nothing else, so that command lines start fast.
"""

from collections.abc import Sequence
from typing import NamedTuple


class ResultFormat(NamedTuple):
    """One format.

    Attributes:
        name: as `--from` takes it.
        reader: `module:function` that reads it, loaded when it is needed.
        is_bench: a benchmark's output that may have several runs: `--line` and `--draw-arrivals`
            are allowed.
        key_sets: a file of JSON objects is of this format if it has all keys of one of these sets.
        first_byte: a file that begins with this byte is of this format; empty: there is none.
        line_test: `module:function` that recognises the format by a line of text, or empty.
        folder_test: `module:function` that recognises a folder of this format, or empty.
    """

    name: str
    reader: str
    is_bench: bool = False
    key_sets: Sequence[frozenset[str]] = ()
    first_byte: bytes = b""
    line_test: str = ""
    folder_test: str = ""


AIPERF = ResultFormat(
    "aiperf",
    "sim.workload.results.aiperf:read_aiperf",
    key_sets=(frozenset({"metadata", "metrics", "request_start_ns"}),),
)
GUIDELLM = ResultFormat(
    "guidellm",
    "sim.workload.results.reports:read_guidellm",
    is_bench=True,
    key_sets=(frozenset({"benchmarks", "guidellm_version"}), frozenset({"benchmarks", "args"})),
)
GENAI_PERF = ResultFormat(
    "genai-perf",
    "sim.workload.results.reports:read_genai_perf",
    is_bench=True,
    key_sets=(frozenset({"experiments", "requests", "response_timestamps"}),),
)
LLMPERF = ResultFormat(
    "llmperf",
    "sim.workload.results.request_lists:read_llmperf",
    key_sets=(frozenset({"end_to_end_latency_s", "ttft_s", "number_output_tokens"}),),
)
INFERENCE_PERF = ResultFormat(
    "inference-perf",
    "sim.workload.results.request_lists:read_inference_perf",
    key_sets=(frozenset({"start_time", "end_time", "request", "response", "info"}),),
)
AIBRIX = ResultFormat(
    "aibrix",
    "sim.workload.results.aibrix:read_aibrix",
    is_bench=True,
    line_test="sim.workload.results.aibrix:is_header",
)
INFERENCEX = ResultFormat(
    "inferencex",
    "sim.workload.results.bench:refuse_aggregates",
    is_bench=True,
    key_sets=(frozenset({"hw", "framework", "conc", "tput_per_gpu"}),),
)
MEASURED = ResultFormat(
    "measured",
    "sim.workload.results.measured:read_measured_requests",
    key_sets=(frozenset({"rid", "arrival_s", "first_token_s", "prompt_tokens", "output_tokens"}),),
)
