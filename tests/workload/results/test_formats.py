"""Formats are recognised by the content of a file."""

import gzip

import pytest

from sim.commands.import_results import read_results, sniff
from sim.core.errors import InputError
from sim.families import RESULT_FORMATS
from sim.workload.results.model import ReadOptions

UNKNOWN = (
    "is in none of the known formats: sglang-bench, vllm-bench, aiperf, guidellm, genai-perf,"
    " llmperf, inference-perf, aibrix, inferencex, measured, sglang-log, sglang-export,"
    " sglang-dump, llmservingsim (choose one by --from)"
)


@pytest.mark.parametrize(
    "content",
    ["", "rid,ttft\n1,2\n", '{"timestamp": 0, "input_length": 3}\n', "hello\n", "[1, 2]\n"],
)
def test_other_files_are_refused_in_one_line(written, refusal, content):
    assert refusal(written(content)) == f"results: {UNKNOWN}"


def test_other_folders_are_refused_too(tmp_path, refusal):
    (tmp_path / "run").mkdir()
    assert refusal(tmp_path / "run") == f"run: {UNKNOWN}"


def test_compressed_files_are_told_as_well(written):
    packed = gzip.compress(b'{"backend": "sglang", "dataset_name": "random"}\n')
    assert sniff(written(packed)) == "sglang-bench"


def test_texts_inside_results_tell_nothing(written):
    """A model's output may look like another format."""
    text = r'{"backend": "x", "dataset_name": "y", "t": "{\"endpoint_type\": 1, Finish: obj=R()"}'
    assert sniff(written(text)) == "sglang-bench"


@pytest.mark.parametrize("format_", RESULT_FORMATS)
def test_missing_files_are_refused_whatever_they_are_said_to_be(tmp_path, format_):
    with pytest.raises(InputError, match=r"nowhere: cannot be read: No such file or directory"):
        read_results(tmp_path / "nowhere", format_, ReadOptions())


BENCHES = [name for name, format_ in RESULT_FORMATS.items() if format_.is_bench]


@pytest.mark.parametrize("format_", sorted(set(RESULT_FORMATS) - set(BENCHES)))
def test_options_of_benches_are_refused_elsewhere(tmp_path, format_):
    """An option without effect is an error."""
    for option, value in (("line", ReadOptions(line=1)), ("draw-arrivals", ReadOptions(None, 1))):
        with pytest.raises(InputError, match=f"--{option}: goes with {' and '.join(BENCHES)} only"):
            read_results(tmp_path, format_, value)


@pytest.mark.parametrize("format_", RESULT_FORMATS)
def test_results_read_as_another_format_end_in_one_line(written, format_):
    """A wrong --from gives one error line."""
    path = written('{"a": 1}\n')
    with pytest.raises(InputError) as caught:
        read_results(path, format_, ReadOptions())
    assert "\n" not in str(caught.value)
