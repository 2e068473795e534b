"""The formats that can be imported: a module that loads nothing, for the command line."""

from enum import StrEnum


class ResultFormat(StrEnum):
    """What can be imported."""

    SGLANG_BENCH = "sglang-bench"
    VLLM_BENCH = "vllm-bench"
    AIPERF = "aiperf"
    SGLANG_LOG = "sglang-log"
    SGLANG_DUMP = "sglang-dump"
    LLMSERVINGSIM = "llmservingsim"
