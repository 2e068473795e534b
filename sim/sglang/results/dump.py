"""SGLang's request dumps (`dump_requests_folder`, `--crash-dump-folder`): pickles of requests.

Format of SGLang 0.5.23 and 0.5.3 (`sglang/srt/managers/tokenizer_manager.py`): a dictionary with
`server_args` and `requests`, each `(GenerateReqInput, out, created, finished)`, times in seconds
since 1970. They are read without running any of their code: see `safe_pickle`.
"""

from collections.abc import Mapping
from pathlib import Path

from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.sglang.results.request import (
    BadRecordError,
    LoggedRequest,
    ReceivedRequest,
    finished,
    is_health_check,
)
from sim.sglang.results.safe_pickle import PickledObject, read_pickle_safely
from sim.sglang.results.settings import facts_of
from sim.workload.results.known_texts import with_known_texts
from sim.workload.results.model import ImportedRun, ServerFacts
from sim.workload.traces.fields import shown


def find_dumps(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.pkl") if path.is_file())


def read_sglang_dump(path: Path) -> ImportedRun:
    """Read one dump, or all of a folder.

    Raises:
        InputError: a file that is no such dump, or a request without lengths or times.
    """
    paths = find_dumps(path) if path.is_dir() else [path]
    facts = ServerFacts(("sglang",))
    imported: list[LoggedRequest] = []
    left_out: list[str] = []
    for each in paths:
        dump = read_pickle_safely(each)
        if not isinstance(dump, dict) or not isinstance(dump.get("requests"), list):
            raise InputError(f"{each}: requests: missing: no dump of SGLang's requests")
        facts = facts_of(_fields(dump.get("server_args")), {})
        for place, entry in enumerate(dump["requests"]):
            _take(f"{each}: requests[{place}]", entry, imported, left_out)
    if not imported:
        raise InputError(f"{path}: holds no results")
    requests = with_known_texts([one.request for one in imported], [one.text for one in imported])
    return ImportedRun(requests, facts, left_out=tuple(left_out))


def _take(where: str, entry: object, imported: list[LoggedRequest], left_out: list[str]) -> None:
    if not isinstance(entry, tuple) or len(entry) != 4:
        raise InputError(f"{where}: is no (request, output, created, finished)")
    received_request, out, created, ended = entry
    obj = _fields(received_request)
    rid = obj.get("rid")
    if not isinstance(rid, str) or not isinstance(out, Mapping):
        raise InputError(f"{where}: rid: {shown(rid)} is no name of one request with an output")
    if not _is_generation(received_request) or is_health_check(obj, rid):
        left_out.append(f"{rid}: a health check, or no request to generate")
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


def _is_generation(received_request: object) -> bool:
    return isinstance(received_request, PickledObject) and received_request.pickled_name.endswith(
        ".GenerateReqInput"
    )


def _ns(where: str, key: str, seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InputError(f"{where}: {key}: {shown(seconds)} is no time in seconds")
    if not 0 < seconds < 1e10:
        raise InputError(f"{where}: {key}: {shown(seconds)} is no time in seconds")
    return round(seconds * NS_PER_S)
