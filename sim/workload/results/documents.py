"""Results with one JSON object a run: one on each line, or one over the whole file."""

from pathlib import Path

from sim.core.errors import InputError
from sim.workload.traces.lines import JsonObject, TextLine, parse_object, read_lines


def read_document(path: Path, line: int | None) -> tuple[TextLine, JsonObject]:
    """The only run of a file, or the run on line `line`.

    A client that appends to its file leaves one run on each line; `jq` spreads a run over many
    lines.

    Raises:
        InputError: bad JSON, no such line, or several runs and no `line`.
    """
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"{path}: holds no results")
    if lines[0].text.strip() == "{":
        lines = [lines[0]._replace(text="\n".join(each.text for each in lines))]
    if line is None and len(lines) > 1:
        numbers = ", ".join(str(each.number) for each in lines[:5])
        more = ", ..." if len(lines) > 5 else ""
        raise InputError(
            f"{path}: holds {len(lines)} runs, on lines {numbers}{more}: say which with --line"
        )
    chosen = [each for each in lines if line in {None, each.number}]
    if not chosen:
        raise InputError(f"{path}: --line {line}: no run there")
    return chosen[0], parse_object(chosen[0])
