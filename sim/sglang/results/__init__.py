"""Imports measured runs of SGLang: results of its benchmark, request logs, exports and dumps."""

from sim.workload.results import ResultFormat

FORMATS = (
    ResultFormat(
        "sglang-bench",
        "sim.sglang.results.settings:read_sglang_bench",
        is_bench=True,
        key_sets=(frozenset({"backend", "dataset_name"}), frozenset({"sharegpt_output_len"})),
    ),
    ResultFormat(
        "sglang-log",
        "sim.sglang.results.log:read_sglang_log",
        line_test="sim.sglang.results.log:is_event",
    ),
    ResultFormat(
        "sglang-export",
        "sim.sglang.results.log:read_sglang_export",
        key_sets=(frozenset({"request_parameters", "completion_tokens"}),),
        folder_test="sim.sglang.results.log:find_exports",
    ),
    ResultFormat(
        "sglang-dump",
        "sim.sglang.results.dump:read_sglang_dump",
        first_byte=b"\x80",  # a pickle
        folder_test="sim.sglang.results.dump:find_dumps",
    ),
)
