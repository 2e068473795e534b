"""SGLang's request dumps (`dump_requests_folder`, `--crash-dump-folder`): pickles of requests.

Format of SGLang 0.5.23 and 0.5.3 (`sglang/srt/managers/tokenizer_manager.py`): a dictionary with
`server_args` and `requests`. A request is `(GenerateReqInput, out, created, finished)`; times are
in seconds since 1970. No code from the pickle is run: see `safe_pickle`.
"""

from collections.abc import Mapping
from pathlib import Path

from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.sglang.results.request import (
    BadRecordError,
    LoggedRequest,
    ReceivedRequest,
    finished,
    is_health_check,
)
from sim.sglang.results.safe_pickle import PickledObject, read_pickle_safely
from sim.sglang.results.settings import facts_of
from sim.workload.results.known_prompts import with_known_texts
from sim.workload.results.model import ImportedRun, ServerFacts
from sim.workload.traces.rows import shown

_MAX_S = MAX_TIME_NS // NS_PER_S


def find_dumps(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.pkl") if path.is_file())


def read_sglang_dump(path: Path) -> ImportedRun:
    """Read one dump, or all dumps in a folder.

    Raises:
        InputError: a file is not such a dump, or a request has no lengths or times.
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
