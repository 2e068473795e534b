"""AIPerf's `inputs.json`: the prompts that were sent.

The file has a list `data` of objects with a `session_id` and a list `payloads`.
"""

from collections.abc import Sequence
from pathlib import Path

from sim.core.errors import InputError
from sim.workload.results.known_texts import prompt_text, with_known_texts
from sim.workload.results.model import ImportedRequest
from sim.workload.traces.fields import shown
from sim.workload.traces.lines import TextLine, parse_object, read_lines


def known_prompts(
    path: Path, conversations: Sequence[str], requests: Sequence[ImportedRequest]
) -> list[ImportedRequest]:
    """Give each request stand-in tokens made from its prompt. Each conversation has one turn.

    Raises:
        InputError: the file cannot be read, or lacks the prompt of a request.
    """
    prompts = _prompts(path)
    for conversation, request in zip(conversations, requests, strict=True):
        if conversation not in prompts:
            raise InputError(
                f"{path}: data: no session_id {shown(conversation)}, which request"
                f" {request.rid} belongs to"
            )
    return with_known_texts(requests, [prompts[conversation] for conversation in conversations])


def _prompts(path: Path) -> dict[str, str]:
    """The text of the first payload of every conversation."""
    whole = TextLine(str(path), 1, "\n".join(line.text for line in read_lines(path)))
    entries = parse_object(whole).get("data")
    if not isinstance(entries, list):
        raise whole.error("data", f"{shown(entries)} is not a list")
    prompts = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("session_id"), str):
            raise whole.error(f"data[{index}].session_id", "missing")
        payloads = entry.get("payloads")
        if not isinstance(payloads, list) or not payloads:
            reason = f"{shown(payloads)} is not a list of prompts"
            raise whole.error(f"data[{index}].payloads", reason)
        prompts[entry["session_id"]] = prompt_text(payloads[0])
    return prompts
