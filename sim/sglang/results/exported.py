"""What SGLang writes with `--export-metrics-to-file`: a JSON object for each request that ended.

Format of SGLang 0.5.23 (`sglang/srt/observability/request_metrics_exporter.py`): the object has the
keys of `meta_info`, and `request_parameters`, a text that is itself a JSON object: the fields of
`GenerateReqInput` that are not empty. The folder has a file for each hour,
`sglang-request-metrics-20261127_09.log`. Times need `--enable-metrics`.
"""

from pathlib import Path

from sim.core.errors import InputError
from sim.sglang.results.request import (
    BadRecordError,
    LoggedRequest,
    ReceivedRequest,
    finished,
    is_health_check,
)
from sim.workload.results.known_prompts import with_known_texts
from sim.workload.results.model import ImportedRun, ServerFacts
from sim.workload.traces.files import TextLine, parse_object, read_json_lines
from sim.workload.traces.rows import shown

_REQUEST, _RECEIVED = "request_parameters", "request_received_ts"


def find_exports(folder: Path) -> list[Path]:
    """The files of all hours, in their order."""
    return sorted(path for path in folder.glob("sglang-request-metrics-*.log") if path.is_file())


def read_sglang_export(path: Path) -> ImportedRun:
    """Read the requests of one file, or of all files in a folder.

    Raises:
        InputError: a file cannot be read, a request has no lengths or times, or comes twice.
    """
    imported: dict[str, LoggedRequest] = {}
    for each in find_exports(path) if path.is_dir() else [path]:
        for line, row in read_json_lines(each):
            request = _request(line, row)
            if request is None:
                continue
            if (rid := request.request.rid) in imported:
                raise line.error("id", f"{shown(rid)} is of an earlier line, too")
            imported[rid] = request
    if not imported:
        raise InputError(f"{path}: holds no results")
    requests = with_known_texts(
        [one.request for one in imported.values()], [one.text for one in imported.values()]
    )
    unknown = sum(request.prompt_ids is None for request in requests)
    note = f"{unknown} prompts are not in the file: it is assumed that they share no prefix"
    return ImportedRun(requests, ServerFacts(("sglang",)), (note,) if unknown else ())


def _request(line: TextLine, row: dict[str, object]) -> LoggedRequest | None:
    """The request of a line; None: it is a health check."""
    rid, text = row.get("id"), row.get(_REQUEST)
    if not isinstance(rid, str):
        raise line.error("id", f"{shown(rid)} is not a request id")
    if not isinstance(text, str):
        raise line.error(_REQUEST, f"{shown(text)} is not a text")
    try:
        asked = parse_object(line._replace(text=text))
    except InputError:
        raise line.error(_REQUEST, "is no JSON object") from None
    if is_health_check(asked, rid):
        return None
    if row.get(_RECEIVED) is None:
        raise line.error(_RECEIVED, "missing: start the server with --enable-metrics, too")
    try:
        return finished(ReceivedRequest(rid, asked, None), {"meta_info": row}, None)
    except BadRecordError as error:
        key, reason = error.args
        raise line.error(key.removeprefix("meta_info."), reason) from None
