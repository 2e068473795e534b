"""The commands of docs/how-to/six-questions.md run, at a small size, and print such tables."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import sim.cli

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "six-questions.md"
# What makes a run short; the commands' own answers take a minute.
SMALL = {
    "plan": ("workload.num_requests=20", "plan.seeds=[1]", "plan.num_shown=1"),
    "chunks": ("workload.num_prompts=4", "workload.warmup_requests=0"),
    "mtp": ("workload.num_prompts=4", "workload.warmup_requests=0"),
    "agents": ("workload.sessions=3", "sweep.seeds=[1]"),
}
# The line that is the same whatever the size.
STEADY = "step times: "


def questions():
    text = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n\$ (.*?)^```", text, re.MULTILINE | re.DOTALL):
        command, *lines = block.splitlines()
        yield pytest.param(command, lines, id=" ".join(command.split()[1:3]))


def test_page_has_six_answers_each_with_what_was_measured():
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(sections) == len(list(questions())) == 6
    assert all("**Measured" in section for section in sections)


@pytest.mark.parametrize(("command", "shown"), list(questions()))
def test_command_of_the_page_runs(command, shown, tmp_path, monkeypatch, capsys):
    """Its table has the columns of the page, and step times come from where the page says."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    monkeypatch.chdir(tmp_path)
    for folder in ("data", "scenarios"):
        Path(folder).symlink_to(REPOSITORY / folder)
    for part in command.split(" && "):
        program, name, *arguments = shlex.split(part)
        assert program == "simulate"
        kind = Path(arguments[0]).stem if name == "sweep" else name
        small = [text for value in SMALL.get(kind, ()) for text in ("--set", value)]
        workers = ["--jobs", "1"] if name in {"plan", "sweep"} else []
        # 1: with so little traffic nothing may meet the SLO.
        assert sim.cli.main([name, *arguments, *small, *workers]) in {0, 1}
    printed = capsys.readouterr().out.splitlines()
    [source] = [line for line in shown if line.startswith(STEADY)]
    assert source in printed
    headings = {line.split()[0] for line, rule in pairwise(shown) if rule.startswith("──")}
    assert headings <= {line.split()[0] for line, rule in pairwise(printed) if "──" in rule}
