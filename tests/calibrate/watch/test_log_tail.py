"""A server's log that grows: what a new start changes is told, however the log is cut."""

import gzip

import pytest

from calibrate.watch.log_tail import LogTail
from sim.core.errors import InputError

BANNER = "(APIServer pid=1) INFO 11-27 09:33:18 [utils.py:1]  █   version 0.26.0\n"
START = (
    "(APIServer pid=1) INFO 11-27 09:33:18 [utils.py:2] non-default args:"
    " {'model': 'm', 'max_num_seqs': 64}\n"
)
POOL = (
    "(EngineCore pid=2) INFO 11-27 09:34:16 [kv_cache_utils.py:3] GPU KV cache size: 1,600 tokens\n"
)
STATISTICS = (
    "(APIServer pid=1) INFO 11-27 09:35:16 [loggers.py:4] Engine 000: Avg prompt throughput:"
    " 10.0 tokens/s, Avg generation throughput: 5.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs,"
    " GPU KV cache usage: 0.1%, Prefix cache hit rate: 0.0%\n"
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(BANNER + START + POOL + STATISTICS)
    return path


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_a_log_that_only_grows_changes_nothing(path):
    tail = LogTail(path, "vllm")
    append(path, STATISTICS * 3)
    assert list(tail.changes()) == []


def test_a_new_start_with_another_version_settings_and_pool_is_told(path):
    tail = LogTail(path, "vllm")
    append(path, BANNER.replace("0.26.0", "0.27.1") + START.replace("64", "32")[:-20])
    list(tail.changes())  # the line of the settings is not whole yet
    append(path, START.replace("64", "32")[-20:] + POOL.replace("1,600", "800"))
    assert list(tail.changes()) == [
        "the server was started anew, by its log",
        "settings changed: max_num_seqs 64 → 32",
        "KV pool 1,600 → 800 tokens",
    ]
    assert list(tail.changes()) == []


def test_a_new_version_is_told(path):
    tail = LogTail(path, "vllm")
    append(path, BANNER.replace("0.26.0", "0.27.1"))
    assert list(tail.changes()) == ["version 0.26.0 → 0.27.1"]


def test_a_log_that_is_emptied_is_read_from_its_beginning(path):
    tail = LogTail(path, "vllm")
    path.write_text(START.replace("64", "16"))
    assert "settings changed: max_num_seqs 64 → 16" in list(tail.changes())


def test_memory_does_not_grow_with_a_line_that_has_no_end(path, monkeypatch):
    monkeypatch.setattr("calibrate.watch.log_tail._PART_BYTES", 1_000)
    append(path, "x" * 5_000)
    tail = LogTail(path, "vllm")
    assert len(tail._rest) == 1_000


def test_a_log_that_is_not_there_or_packed_is_refused(tmp_path):
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(START.encode()))
    with pytest.raises(InputError, match=r"log\.gz: is packed, so it does not grow"):
        LogTail(packed, "vllm")
    with pytest.raises(InputError, match=r"missing\.log: cannot be read: No such file"):
        LogTail(tmp_path / "missing.log", "vllm")
    with pytest.raises(InputError, match="logs of family other are not known"):
        LogTail(tmp_path / "missing.log", "other")
