"""servetwin's own trace format: JSON lines whose prompts are token streams or token ids."""

import json
from collections.abc import Mapping
from decimal import Decimal
from itertools import islice
from pathlib import Path

from sim.core.units import NS_PER_S
from sim.workload import (
    MAX_OUTPUT_FACTOR,
    MAX_TOKENS,
    NEVER_GIVES_UP_NS,
    NO_PRIORITY,
)
from sim.workload.prompts import ArrayPrompts, EitherPrompts, SegmentPrompts
from sim.workload.rng import MAX_STREAMS
from sim.workload.traces.files import JsonObject, TextLine, read_json_lines
from sim.workload.traces.rows import (
    IntColumn,
    TraceRows,
    flag,
    refuse_unknown,
    require_rows,
    shown,
    time_ns,
    whole,
    why_not_whole,
)

FIELDS = (
    "rid",
    "arrival",
    "segments",
    "input_ids",
    "output_len",
    "output_ids",
    "max_new_tokens",
    "priority",
    "output_seed",
    "ignore_eos",
    "tenant",
    "session",
    "gives_up_after",
)
_FIRST_OUTPUT_SEED = 1 << 20
# The largest limit that `max_new_tokens: {factor: ...}` of a scenario can give.
_MAX_LIMIT = MAX_OUTPUT_FACTOR * MAX_TOKENS
_MAX_PRIORITY = (1 << 31) - 1
_MAX_TOKEN_ID = (1 << 63) - 1


class _TraceColumns:
    """The columns of a file, which grow while it is read."""

    def __init__(self) -> None:
        self.arrivals, self.outputs, self.limits = IntColumn(), IntColumn(), IntColumn()
        self.output_seeds, self.priorities, self.ignore_eos = IntColumn(), IntColumn(), IntColumn()
        self.seeds, self.lengths, self.segment_ends = IntColumn(), IntColumn(), IntColumn([0])
        self.ids, self.id_ends = IntColumn(), IntColumn([0])
        self.output_ids, self.output_id_ends = IntColumn(), IntColumn([0])
        self.rid_lines: dict[str, int] = {}
        self.gives_up = IntColumn()
        self.some_give_up = False
        self.tenants: list[str] = []
        self.sessions: list[str] = []

    @property
    def known_outputs(self) -> ArrayPrompts | None:
        if not len(self.output_ids):
            return None
        return ArrayPrompts(self.output_ids.to_numpy(), self.output_id_ends.to_numpy())

    def add(self, line: TextLine, row: JsonObject) -> None:
        refuse_unknown(line, row, FIELDS)
        place = len(self.arrivals)
        rid = _rid(line, row, default=str(place))
        if rid in self.rid_lines:
            first = self.rid_lines[rid]
            raise line.error("rid", f"{shown(rid)} is used already on line {first}")
        self.rid_lines[rid] = line.number
        self.arrivals.append(time_ns(line, row, "arrival", unit_ns=NS_PER_S))
        self._add_prompt(line, row)
        output_len = whole(line, row, "output_len")
        self.outputs.append(output_len)
        self._add_output(line, row, output_len)
        self.limits.append(_optional(line, row, "max_new_tokens", output_len, 1, _MAX_LIMIT))
        self.output_seeds.append(
            _optional(line, row, "output_seed", _FIRST_OUTPUT_SEED + place, 0, MAX_STREAMS - 1)
        )
        self.priorities.append(_priority(line, row))
        self.ignore_eos.append(flag(line, row, "ignore_eos"))
        self.gives_up.append(_gives_up_ns(line, row))
        self.some_give_up |= self.gives_up.last != NEVER_GIVES_UP_NS
        self.tenants.append(_name(line, row, "tenant"))
        self.sessions.append(_name(line, row, "session"))

    def _add_output(self, line: TextLine, row: JsonObject, output_len: int) -> None:
        if "output_ids" in row:
            known = _token_ids(line, row, "output_ids")
            if len(known) > output_len:
                raise line.error("output_ids", f"{len(known)} tokens, above output_len")
            self.output_ids.extend(known)
        self.output_id_ends.append(len(self.output_ids))

    def _add_prompt(self, line: TextLine, row: JsonObject) -> None:
        if ("segments" in row) == ("input_ids" in row):
            both = "are both there" if "segments" in row else "are both missing"
            raise line.error("segments", f"segments and input_ids {both}; one of them is needed")
        if "segments" in row:
            for seed, num_tokens in _segments(line, row["segments"]):
                self.seeds.append(seed)
                self.lengths.append(num_tokens)
        else:
            self.ids.extend(_token_ids(line, row, "input_ids"))
        self.segment_ends.append(len(self.seeds))
        self.id_ends.append(len(self.ids))


def servetwin_line(arrival_ns: int, row: Mapping[str, object]) -> str:
    """A line of the format. `row` has all keys except `arrival`."""
    # A float would round times above 26 days, so the time is written as an exact decimal.
    arrival_s = Decimal(arrival_ns) / NS_PER_S
    return f'{{"arrival":{arrival_s:f},{json.dumps(row, separators=(",", ":"))[1:]}\n'


def read_servetwin(path: Path, *, limit: int | None) -> TraceRows:
    """Read the rows; they need not be in order of time.

    `arrival` is in seconds. Defaults: `rid` is the row's number, counted from 0; `output_seed` is
    2**20 plus that number; `max_new_tokens` is `output_len`; `output_ids`, the first tokens of the
    output, are those of the stream. A `priority` that is null or missing means none.
    `gives_up_after` is in seconds after the arrival; without it the client waits for ever.
    """
    columns = _TraceColumns()
    for line, row in islice(read_json_lines(path), limit):
        columns.add(line, row)
    require_rows(len(columns.arrivals), path)
    return TraceRows(
        arrival_ns=columns.arrivals.to_numpy(),
        prompts=EitherPrompts(
            SegmentPrompts(
                columns.seeds.to_numpy(),
                columns.lengths.to_numpy(),
                columns.segment_ends.to_numpy(),
            ),
            ArrayPrompts(columns.ids.to_numpy(), columns.id_ends.to_numpy()),
        ),
        output_tokens=columns.outputs.to_numpy(),
        output_seeds=columns.output_seeds.to_numpy(),
        known_outputs=columns.known_outputs,
        max_new_tokens=columns.limits.to_numpy(),
        priorities=columns.priorities.to_numpy(),
        ignore_eos=columns.ignore_eos.to_numpy().astype(bool),
        gives_up_ns=columns.gives_up.to_numpy() if columns.some_give_up else None,
        rids=list(columns.rid_lines),
        tenants=columns.tenants,
        sessions=columns.sessions if any(columns.sessions) else None,
    )


def _rid(line: TextLine, row: JsonObject, default: str) -> str:
    rid = row.get("rid", default)
    if type(rid) is int:
        return str(rid)
    if not isinstance(rid, str) or not rid:
        raise line.error("rid", f"{shown(rid)} is neither text nor a whole number")
    _require_printable(line, "rid", rid)
    return rid


def _priority(line: TextLine, row: JsonObject) -> int:
    if row.get("priority") is None:
        return NO_PRIORITY
    return whole(line, row, "priority", low=-_MAX_PRIORITY, high=_MAX_PRIORITY)


def _gives_up_ns(line: TextLine, row: JsonObject) -> int:
    if row.get("gives_up_after") is None:
        return NEVER_GIVES_UP_NS
    return time_ns(line, row, "gives_up_after", unit_ns=NS_PER_S)


def _name(line: TextLine, row: JsonObject, key: str) -> str:
    name = row.get(key, "")
    if not isinstance(name, str):
        raise line.error(key, f"{shown(name)} is not text")
    _require_printable(line, key, name)
    return name


def _require_printable(line: TextLine, key: str, text: str) -> None:
    # Names are written to tables and files, which fails for half a surrogate pair.
    if not text.isprintable():
        raise line.error(key, f"{shown(text)} has characters that cannot be printed")


def _optional(line: TextLine, row: JsonObject, key: str, default: int, low: int, high: int) -> int:
    return whole(line, row, key, low=low, high=high) if key in row else default


def _segments(line: TextLine, segments: object) -> list[list[int]]:
    if not isinstance(segments, list) or not segments:
        raise line.error("segments", f"{shown(segments)} is not a list of [seed, length] pairs")
    total = 0
    for segment in segments:
        if not isinstance(segment, list) or len(segment) != 2:
            raise line.error("segments", f"{shown(segment)} is not a [seed, length] pair")
        seed, num_tokens = segment
        if type(seed) is not int or not 0 <= seed < MAX_STREAMS:
            raise line.error("segments", f"seed {why_not_whole(seed, 0, MAX_STREAMS - 1)}")
        if type(num_tokens) is not int or not 1 <= num_tokens <= MAX_TOKENS:
            raise line.error("segments", f"length {why_not_whole(num_tokens, 1, MAX_TOKENS)}")
        total += num_tokens
    if total > MAX_TOKENS:
        raise line.error("segments", f"{total} tokens, above {MAX_TOKENS}")
    return segments


def _token_ids(line: TextLine, row: JsonObject, key: str) -> list[int]:
    ids = row[key]
    if not isinstance(ids, list) or not ids:
        raise line.error(key, f"{shown(ids)} is not a list of token ids")
    if len(ids) > MAX_TOKENS:
        raise line.error(key, f"{len(ids)} tokens, above {MAX_TOKENS}")
    if not all(type(i) is int and 0 <= i <= _MAX_TOKEN_ID for i in ids):
        bad = next(i for i in ids if type(i) is not int or not 0 <= i <= _MAX_TOKEN_ID)
        raise line.error(key, why_not_whole(bad, 0, _MAX_TOKEN_ID))
    return ids
