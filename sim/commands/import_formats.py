"""Recognises the format of a measured run, and reads the run."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from sim.core.errors import InputError
from sim.core.packed import STDIN, open_file
from sim.families import RESULT_FORMATS
from sim.workload.results import ResultFormat
from sim.workload.results.model import ImportedRun, ReadOptions
from sim.workload.traces.files import read_lines

# Keys are looked for in this many characters at the beginning of a file.
_NUM_SNIFFED_CHARS = 1 << 18
_KEY = re.compile(r'"(\w+)"\s*:', re.ASCII)
# In reverse order, so vLLM's benchmark first: some of its results have the keys of SGLang's, too.
_BY_KEYS = [
    (keys, format_) for format_ in reversed(RESULT_FORMATS.values()) for keys in format_.key_sets
]


def sniff(path: Path) -> str:
    """Recognise a format by the contents of the file or folder.

    Raises:
        InputError: the path cannot be read, or no format is recognised.
    """
    if path.exists() and not (path.is_dir() or path.is_file()):
        # It is read twice: once to recognise the format.
        raise InputError(f"{path}: is no regular file: save it to one first")
    found = _sniff_folder(path) if path.is_dir() else _sniff_file(path)
    if found is None:
        known = ", ".join(RESULT_FORMATS)
        raise InputError(f"{path}: is in none of the known formats: {known} (choose one by --from)")
    return found.name


def read_results(path: Path, name: str, options: ReadOptions) -> ImportedRun:
    """Read a measured run of the format of this name.

    Raises:
        InputError: the file, the folder, or a line in it is bad, or an option does not go with the
            format.
    """
    if path != STDIN and not path.exists():
        raise InputError(f"{path}: cannot be read: No such file or directory")
    format_ = RESULT_FORMATS[name]
    read: Callable[..., ImportedRun] = _load(format_.reader)
    if format_.is_bench:
        return read(path, options)
    for option, value in zip(("--line", "--draw-arrivals"), options, strict=True):
        if value is not None:
            benches = " and ".join(each.name for each in RESULT_FORMATS.values() if each.is_bench)
            raise InputError(f"{option}: goes with {benches} only, but {path} is {name}")
    return read(path)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _is_json(text: str) -> bool:
    """Whether a line may be JSON; a line of a log begins with a time in brackets."""
    return not text.startswith("[") or text[1:].lstrip()[:1] in {"", "{"}


def _sniff_folder(path: Path) -> ResultFormat | None:
    tests = [each for each in RESULT_FORMATS.values() if each.folder_test]
    # In reverse order: a folder with requests.jsonl is LLMServingSim's even if it has *.pkl files.
    for format_ in reversed(tests):
        if _load(format_.folder_test)(path):
            return format_
    return None


def _sniff_file(path: Path) -> ResultFormat | None:
    try:
        with open_file(path) as file:
            first = file.read(1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    for format_ in RESULT_FORMATS.values():
        if first and format_.first_byte == first:
            return format_
    line_tests = [
        (_load(format_.line_test), format_)
        for format_ in RESULT_FORMATS.values()
        if format_.line_test
    ]
    keys: set[str] = set()
    num_seen = 0
    for line in read_lines(path):
        if num_seen < _NUM_SNIFFED_CHARS and _is_json(line.text):
            keys |= set(_KEY.findall(line.text[: _NUM_SNIFFED_CHARS - num_seen]))
            num_seen += len(line.text)
            for needed, format_ in _BY_KEYS:
                if needed <= keys:
                    return format_
        for test, format_ in line_tests:
            if test(line.text):
                return format_
    return None
