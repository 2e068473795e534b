"""The files of an attack: the trace, attack.md and attack.json."""

from collections.abc import Iterator
from pathlib import Path

from sim import __version__
from sim.contest.again import command_of
from sim.contest.attack.duel import Duel
from sim.contest.attack.explain import explain, sentences
from sim.contest.attack.search import Found
from sim.contest.attack.streams import trace_text
from sim.core.files import json_text, write_text
from sim.tables.table import counted

TRACE, WORDS, RESULTS = "attack.jsonl", "attack.md", "attack.json"


def write_attack(duel: Duel, found: Found, out: Path) -> list[Path]:
    """Write the trace, and what it shows; attack.json comes last."""
    write_text(duel.trace, trace_text(found.rows))
    write_text(out / WORDS, "\n\n".join(_paragraphs(duel, found)) + "\n")
    write_text(out / RESULTS, attack_json(duel, found))
    return [out / TRACE, out / WORDS, out / RESULTS]


def attack_lines(duel: Duel, found: Found) -> Iterator[str]:
    """What was found, for the terminal."""
    name, reference = duel.names
    explanation = explain(found.outcome)
    yield (
        f"attack on {name}, beside {reference}: {counted(len(found.rows), 'request')}"
        f" ({found.first_rows} before the trace was made smaller); {found.num_trials:,} traces"
        f" tried, and {found.num_shrinking:,} to make the worst one smaller"
    )
    for sentence in sentences(explanation, name, reference):
        yield f"  {sentence}"


def commands(duel: Duel) -> dict[str, str]:
    """The commands that serve the trace again, by contestant."""
    workload = {"workload": duel.workload()}
    settings = duel.contest.settings
    return {name: command_of(duel.contest, {**settings[name], **workload}) for name in duel.names}


def _paragraphs(duel: Duel, found: Found) -> Iterator[str]:
    head, *rest = attack_lines(duel, found)
    yield f"# {head[0].upper()}{head[1:]}"
    yield " ".join(line.strip() for line in rest)
    yield "To serve the trace again:"
    for name, command in commands(duel).items():
        yield f"* {name}: `{command}`"
    yield f"Made by servetwin {__version__}."


def attack_json(duel: Duel, found: Found) -> str:
    """The text of attack.json; equal results give equal text."""
    explanation = explain(found.outcome)
    name, reference = duel.names
    likenesses = [each._asdict() for each in explanation.likenesses]
    content = {
        "contestant": name,
        "reference": reference,
        "num_requests": len(found.rows),
        "num_requests_before": found.first_rows,
        "num_trials": found.num_trials,
        "num_shrinking": found.num_shrinking,
        "score": found.outcome.score,
        "score_before": found.first_score,
        "unit_s": duel.unit_s,
        "victim": {**explanation._asdict(), "likenesses": likenesses},
        "commands": commands(duel),
    }
    return json_text(content, indent=1)
