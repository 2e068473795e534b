"""Writes a whole workload as a trace in servetwin's own format."""

from pathlib import Path

from sim.core.errors import InputError
from sim.core.files import atomic_path
from sim.core.tokens import ArrayPrompt, SegmentPrompt
from sim.workload.traces.servetwin import servetwin_line
from sim.workload.workload import ScriptedRequest, Workload


def write_servetwin(workload: Workload, path: Path) -> None:
    """Write the requests; reading the file gives equal requests.

    Raises:
        InputError: the file cannot be written, or the format cannot express the workload:
            closed-loop clients, prompts given by block ids, or predicted output lengths.
    """
    if len(workload.clients):
        raise InputError(f"{path}: closed-loop clients have no arrival times to write")
    with atomic_path(path) as beside, beside.open("w", encoding="utf-8") as file:
        for request in workload.arrivals():
            file.write(_line(request, path))


def _line(request: ScriptedRequest, path: Path) -> str:
    spec, script = request.spec, request.script
    if spec.predicted_output_tokens is not None:
        raise InputError(f"{path}: request {spec.rid}: predicted output lengths cannot be written")
    row: dict[str, object] = {"rid": spec.rid}
    match spec.prompt:
        case SegmentPrompt():
            row["segments"] = spec.prompt.segments
        case ArrayPrompt(ids):
            row["input_ids"] = ids.tolist()
        case _:
            raise InputError(f"{path}: request {spec.rid}: block ids cannot be written")
    row |= {
        "output_len": script.num_tokens,
        "max_new_tokens": spec.max_new_tokens,
        "output_seed": script.seed,
        "ignore_eos": spec.ignore_eos,
    }
    if spec.priority is not None:
        row["priority"] = spec.priority
    if spec.tenant:
        row["tenant"] = spec.tenant
    if spec.session:
        row["session"] = spec.session
    return servetwin_line(spec.arrival_ns, row)
