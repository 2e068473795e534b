"""SGLang's request dumps (`dump_requests_folder`, `--crash-dump-folder`): pickles of requests.

Format of SGLang 0.5.23 and 0.5.3 (`sglang/srt/managers/tokenizer_manager.py`): a dictionary with
`server_args` and `requests`. A request is `(GenerateReqInput, out, created, finished)`; times are
in seconds since 1970. No code from the pickle is run, and time and memory are bounded.

A pickle is a program: it may name any function of any module and call it. Here each name in the
pickle becomes a new empty class that only stores its arguments. Nothing is imported or called, so a
file cannot do more than describe objects.

A hundred bytes can describe lists that contain each other a billion times over, so what is done
and what is described is counted, and compared with the size of the file.

The standard library has two unpicklers; this uses the one written in Python. The one written in C
allocates memory for any number of objects that a damaged file claims to have.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from sim.core.errors import InputError
from sim.core.packed import read_file
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.sglang.results.request import (
    BadRecordError,
    LoggedRequest,
    ReceivedRequest,
    finished,
    is_health_check,
)
from sim.sglang.results.settings import facts_of
from sim.workload.results.known_prompts import with_known_texts
from sim.workload.results.model import ImportedRun, ServerFacts
from sim.workload.traces.rows import shown

# A real dump names a dozen classes.
_MAX_CLASSES = 1_000
# How many objects a file may describe: this many, and more for each of its bytes.
_FREE_WORK = 1_000_000
_WORK_A_BYTE = 16
_KEYS = (str, int, float, bool, bytes, type(None))


class _DamagedError(Exception):
    """The pickle does what no dump of requests does."""


class PickledObject:
    """Stands for an object whose class is not loaded.

    Attributes:
        pickled_name: module and name of the class.
        arguments: what the class would be called with; if it derives from list, the items too.
        fields: the object's attributes; if its class derives from dict, the items too.
    """

    pickled_name = ""
    # Counts objects that are copied; set by the unpickler.
    spend: Callable[[int], None] = staticmethod(lambda _number: None)

    def __new__(cls, *arguments: object, **named: object) -> Self:
        made = super().__new__(cls)
        cls.spend(len(arguments) + len(named))
        made.arguments = list(arguments)
        made.fields = dict(named)
        return made

    def __init__(self, *arguments: object, **named: object) -> None:
        """Accept any arguments; `__new__` has stored them."""

    arguments: list[object]
    fields: dict[str, object]

    def __setstate__(self, state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                type(self).spend(len(part))
                self.fields.update((_key_text(key), value) for key, value in part.items())

    def __setitem__(self, key: object, value: object) -> None:
        """Store an item of an object whose class derives from dict."""
        self.fields[_key_text(key)] = value

    def append(self, value: object) -> None:
        """Store an item of an object whose class derives from list."""
        self.arguments.append(value)

    def __hash__(self) -> int:
        return id(self)


_PythonUnpickler: Any = pickle._Unpickler


def _checked(load: Callable[[Any], None], places: slice) -> Callable[[Any], None]:
    """An operation that stores items in a dictionary, whose keys must be plain.

    `load` is the operation; `places` is where it finds the keys on the stack.
    """

    def load_checked(unpickler: Any) -> None:
        keys: list[object] = unpickler.stack[places]
        if not all(isinstance(key, _KEYS) for key in keys):
            raise _DamagedError("has a dictionary with keys that are no text")
        load(unpickler)

    return load_checked


class _SafeUnpickler(_PythonUnpickler):  # type: ignore[misc]
    def __init__(self, content: bytes) -> None:
        super().__init__(BytesIO(content))
        self._classes: dict[str, type[PickledObject]] = {}
        self._work_left = _FREE_WORK + _WORK_A_BYTE * len(content)

    def spend(self, number: int) -> None:
        """Count work; raises _DamagedError if it is far more than the file's size."""
        self._work_left -= number
        if self._work_left < 0:
            raise _DamagedError("describes far more objects than its size allows")

    def find_class(self, module: str, name: str) -> Any:
        self.spend(len(module) + len(name))
        full_name = f"{module}.{name}"
        if full_name not in self._classes:
            if len(self._classes) == _MAX_CLASSES:
                raise _DamagedError(f"names over {_MAX_CLASSES:,} classes")
            content = {"pickled_name": full_name, "spend": staticmethod(self.spend)}
            self._classes[full_name] = type("PickledObject", (PickledObject,), content)
        return self._classes[full_name]

    def _refuse(self) -> NoReturn:
        raise _DamagedError("has a set, which no dump of requests has")

    # Nothing else of a pickle hashes objects or copies them: a tuple's hash visits all its parts.
    dispatch: ClassVar = {
        **_PythonUnpickler.dispatch,
        pickle.EMPTY_SET[0]: _refuse,
        pickle.ADDITEMS[0]: _refuse,
        pickle.FROZENSET[0]: _refuse,
        pickle.SETITEM[0]: _checked(_PythonUnpickler.load_setitem, slice(-2, -1)),
        pickle.SETITEMS[0]: _checked(_PythonUnpickler.load_setitems, slice(None, None, 2)),
        pickle.DICT[0]: _checked(_PythonUnpickler.load_dict, slice(None, None, 2)),
    }


def read_pickle_safely(path: Path) -> object:
    """The object in a file; instances of classes become `PickledObject`.

    Raises InputError: the file cannot be read, or is not a pickle, or describes far more than its
    size allows.
    """
    content = read_file(path)
    unpickler = _SafeUnpickler(content)
    try:
        read: object = unpickler.load()
        unpickler.spend(_num_described(read))
    except Exception as error:
        # A damaged pickle may raise any exception, depending on its bytes.
        raise InputError(f"{path}: is not a pickle, or is damaged ({error})") from None
    return read


def _num_described(top: object) -> int:
    """How many objects one meets on all ways from the top; many more than there are, if shared.

    Raises _DamagedError: an object contains itself.
    """
    numbers: dict[int, int] = {}
    begun: set[int] = set()
    todo = [top]
    while todo:
        each = todo[-1]
        parts = [part for part in _parts(each) if isinstance(part, _CONTAINERS)]
        if id(each) in numbers:
            todo.pop()
        elif id(each) in begun:
            begun.discard(id(each))
            num_plain = len(_parts(each)) - len(parts)
            numbers[id(each)] = 1 + num_plain + sum(numbers[id(part)] for part in parts)
            todo.pop()
        else:
            begun.add(id(each))
            if any(id(part) in begun for part in parts):
                raise _DamagedError("has an object that contains itself")
            todo += parts
    return numbers[id(top)]


def _parts(value: object) -> Sequence[object]:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, PickledObject):
        return [*value.arguments, *value.fields.values()]
    return ()


_CONTAINERS = (list, tuple, dict, PickledObject)


def _key_text(key: object) -> str:
    return key if isinstance(key, str) else repr(key) if isinstance(key, _KEYS) else "?"


_MAX_S = MAX_TIME_NS // NS_PER_S


def find_dumps(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.pkl") if path.is_file())


def read_sglang_dump(path: Path) -> ImportedRun:
    """Read one dump, or all dumps in a folder.

    Raises InputError: a file is not such a dump, or a request has no lengths or times.
    """
    paths = find_dumps(path) if path.is_dir() else [path]
    facts = ServerFacts(("sglang",))
    imported: list[LoggedRequest] = []
    left_out: list[str] = []
    for each in paths:
        dump = read_pickle_safely(each)
        if not isinstance(dump, dict) or not isinstance(dump.get("requests"), list):
            raise InputError(f"{each}: requests: missing; this is no dump of SGLang's requests")
        facts = facts_of(_fields(dump.get("server_args")), {})
        for place, entry in enumerate(dump["requests"]):
            _take(f"{each}: requests[{place}]", entry, imported, left_out)
    if not imported:
        raise InputError(f"{path}: holds no results")
    requests = with_known_texts([one.request for one in imported], [one.text for one in imported])
    return ImportedRun(requests, facts, left_out=tuple(left_out))


def _take(where: str, entry: object, imported: list[LoggedRequest], left_out: list[str]) -> None:
    """Append an entry of a dump to `imported`, or the reason why it is skipped to `left_out`."""
    if not isinstance(entry, tuple) or len(entry) != 4:
        raise InputError(f"{where}: must be (request, output, created, finished)")
    asked, out, created, ended = entry
    obj = _fields(asked)
    rid = obj.get("rid")
    if not isinstance(rid, str) or not isinstance(out, Mapping):
        raise InputError(f"{where}: rid: {shown(rid)} is not the id of one request with an output")
    if not _is_generation(asked) or is_health_check(obj, rid):
        left_out.append(f"{rid}: a health check, or not a generation request")
        return
    times = (_ns(where, "created", created), _ns(where, "finished", ended))
    try:
        imported.append(finished(ReceivedRequest(rid, obj, times[0]), out, times[1]))
    except BadRecordError as error:
        key, reason = error.args
        raise InputError(f"{where}: {key}: {reason}") from None


def _fields(value: object) -> Mapping[str, object]:
    if isinstance(value, PickledObject):
        return value.fields
    return value if isinstance(value, Mapping) else {}


def _is_generation(asked: object) -> bool:
    return isinstance(asked, PickledObject) and asked.pickled_name.endswith(".GenerateReqInput")


def _ns(where: str, key: str, seconds: object) -> int:
    if not (
        isinstance(seconds, int | float) and type(seconds) is not bool and 0 < seconds < _MAX_S
    ):
        raise InputError(f"{where}: {key}: {shown(seconds)} is not a time in seconds")
    return round(seconds * NS_PER_S)
