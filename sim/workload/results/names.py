"""The formats that can be imported; apart, as every command line loads this module."""

from enum import StrEnum


class ResultFormat(StrEnum):
    """What can be imported."""

    SGLANG_BENCH = "sglang-bench"
    VLLM_BENCH = "vllm-bench"
    AIPERF = "aiperf"
    SGLANG_LOG = "sglang-log"
    SGLANG_DUMP = "sglang-dump"
    LLMSERVINGSIM = "llmservingsim"
