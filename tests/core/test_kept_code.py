"""Code of texts is kept between processes, and is what Python would have compiled."""

import collections
import dataclasses
import marshal
import subprocess
import sys

import pytest

from sim.core.kept_code import KeptCode

MAKE_CLASSES = """
import sys
from pathlib import Path
import builtins, dataclasses, collections
from sim.core.kept_code import KeptCode
kept = KeptCode(Path(sys.argv[1]))
vars(dataclasses)["exec"], vars(collections)["eval"] = kept.execute, kept.evaluate
compiled = []
compile_it = builtins.compile
def noted(text, *how, **more):
    compiled.append(text)
    return compile_it(text, *how, **more)
builtins.compile = noted
record = dataclasses.make_dataclass("Record", [("a", int), ("b", int, 7)], frozen=True, slots=True)
pair = collections.namedtuple("pair", "one two", defaults=[3])
builtins.compile = compile_it
assert record(1) == record(1, 7) != record(2) and repr(record(1)).endswith("Record(a=1, b=7)")
assert hash(record(1)) == hash(record(1)) and pair(2) == (2, 3)
try:
    record(1).a = 2
except dataclasses.FrozenInstanceError:
    print(len(compiled))
kept.save()
"""


def texts_compiled(file):
    done = subprocess.run(
        [sys.executable, "-c", MAKE_CLASSES, file], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_second_process_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    assert texts_compiled(tmp_path / "kept.texts") > 1
    assert texts_compiled(tmp_path / "kept.texts") == 0
    assert [file.name for file in tmp_path.iterdir()] == ["kept.texts"]


def test_nothing_is_kept_where_python_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    texts_compiled(tmp_path / "kept.texts")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "damage", [b"", b"\x00", b"no code", marshal.dumps({"1 + 1": b"cut"})[:-4]]
)
def test_damaged_file_is_written_anew(tmp_path, monkeypatch, damage):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    file = tmp_path / "kept.texts"
    file.write_bytes(damage)
    assert texts_compiled(file) > 1
    assert texts_compiled(file) == 0


def test_folder_that_cannot_be_written_to_does_not_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    kept = KeptCode(tmp_path / "none" / "kept.texts")
    assert kept.evaluate("1 + 1", {}) == 2
    kept.save()
    assert not [*tmp_path.iterdir()]


def test_python_still_asks_for_these_names():
    """Otherwise nothing would be kept, and the start be slower, unnoticed."""
    assert (
        "exec" in dataclasses._create_fn.__code__.co_names
        if sys.version_info < (3, 13)
        else ("exec" in dataclasses._FuncBuilder.add_fns_to_class.__code__.co_names)
    )
    assert "eval" in collections.namedtuple.__code__.co_names  # noqa: PYI024 - the function
