"""A step's decision as plain values, under the names of the decision log, and how two differ."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.core.batch import Batch, ForwardMode
from sim.engine.records import Decided, StepState

Line = Mapping[str, Any]

MODE_NAMES = {
    ForwardMode.EXTEND: "extend",
    ForwardMode.DECODE: "decode",
    ForwardMode.MIXED: "mixed",
}
# Fields that agree between two logs of the same decisions, even if the times differ.
DECIDED_FIELDS = (
    "mode", "prefill", "n_decode", "decode_crc", "ctx", "free", "evictable", "used", "retracted",
    "preempted", "aborted", "queue", "running", "full", "ratio", "chunked",
)  # fmt: skip
# The same for fields that only a server with KV in host memory logs.
HOST_FIELDS = ("loaded", "host_used")
# The same for steps with speculative decoding.
DRAFT_FIELDS = ("drafts",)


def decode_crc(batch: Batch) -> int:
    """CRC-32 of the decode rows' rids in batch order, joined by commas."""
    return zlib.crc32(",".join(batch.decode_rids).encode())


def describe_decision(batch: Batch, state: StepState, crc: int) -> dict[str, Any]:
    """One step's `DECIDED_FIELDS`, `HOST_FIELDS` with host memory, and `DRAFT_FIELDS` with drafts.

    `crc` is `decode_crc(batch)`, which callers compute once for many steps of the same rows.
    """
    fields = {
        "mode": MODE_NAMES[batch.mode],
        "prefill": [[row.rid, row.prefix_len, row.extend_len] for row in batch.prefill],
        "n_decode": len(batch.decode_rids),
        "decode_crc": crc,
        "ctx": batch.num_context_tokens,
        "free": state.free_tokens,
        "evictable": state.evictable_tokens,
        "used": state.used_tokens,
        "retracted": list(state.retracted),
        "preempted": [[by, list(victims)] for by, victims in state.preempted],
        "aborted": list(state.aborted),
        "queue": state.queue,
        "running": state.running,
        "full": state.full,
        "ratio": state.ratio,
        "chunked": state.chunked,
    }
    if state.host_used_tokens is not None:
        loaded = [(row.rid, row.num_loaded_tokens) for row in batch.prefill]
        fields["loaded"] = [[rid, number] for rid, number in (*loaded, *state.restored) if number]
        fields["host_used"] = state.host_used_tokens
    if batch.drafts:
        fields["drafts"] = list(batch.drafts)
    return fields


@dataclass(frozen=True)
class Divergence:
    """The first place where two logs disagree.

    Attributes:
        where: the step's number, or the request.
        ours, theirs: the two lines; None if that log has no more lines.
        before: the line before `theirs` in the same log.
    """

    where: str
    fields: tuple[str, ...]
    ours: Line | None
    theirs: Line | None
    before: Line | None = None

    def __str__(self) -> str:
        """A table: the differing fields first, then the other fields of the same step."""
        names = dict.fromkeys([*self.fields, *DECIDED_FIELDS])
        rows = [f"{self.where}: {', '.join(self.fields)}"]
        rows.append(f"{'':12} here | there | there, one step before")
        for name in names:
            cells = (_cell(line, name) for line in (self.ours, self.theirs, self.before))
            mark = "*" if name in self.fields else " "
            rows.append(f"{mark}{name:11} " + " | ".join(cells))
        return "\n".join(rows)


def _cell(line: Line | None, name: str) -> str:
    return "-" if line is None else str(line.get(name, "-"))


def divergence_of(
    decided: Sequence[Decided], step: Mapping[int, Line], before: Mapping[int, Line], number: int
) -> Divergence | None:
    """Where the ranks of a server decide otherwise than in a log.

    `decided` is by rank. `step` has the line of each rank that had work in the log's step, `before`
    those of the step before; `number` is the step's, for the message.
    """
    for rank, each in enumerate(decided):
        theirs, ours = step.get(rank), None
        if each.batch is not None and each.state is not None:
            ours = describe_decision(each.batch, each.state, decode_crc(each.batch))
        where = f"rank {rank}, " if len(decided) > 1 else ""
        if theirs is None:
            if ours is not None:
                fields: tuple[str, ...] = ("nothing was launched",)
                return Divergence(f"{where}no step", fields, ours, None, before.get(rank))
            continue
        fields = _differing_fields(ours, theirs)
        if fields:
            return Divergence(f"{where}step {number}", fields, ours, theirs, before.get(rank))
    return None


def _differing_fields(ours: Line | None, theirs: Line) -> tuple[str, ...]:
    """Where a step that was decided now (None: nothing was launched) differs from the log's."""
    if ours is None:
        return ("nothing to launch",)
    differing = [name for name in DECIDED_FIELDS if ours[name] != theirs.get(name)]
    differing += [
        name for name in (*HOST_FIELDS, *DRAFT_FIELDS) if ours.get(name) != theirs.get(name)
    ]
    return tuple(differing)
