"""Imports measured runs of vLLM: its benchmark's results and LLMServingSim's logs."""

from sim.workload.results import ResultFormat

FORMATS = (
    ResultFormat(
        "vllm-bench",
        "sim.vllm.results.bench:read_vllm_bench",
        is_bench=True,
        key_sets=(frozenset({"endpoint_type"}), frozenset({"backend", "burstiness"})),
    ),
    ResultFormat(
        "llmservingsim",
        "sim.vllm.results.llmservingsim:read_llmservingsim",
        folder_test="sim.vllm.results.llmservingsim:find_requests",
    ),
)
