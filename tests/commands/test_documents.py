"""Documents agree with the program, where that can be checked."""

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def decision_log_text():
    return (DOCS / "reference" / "decision-log.md").read_text(encoding="utf-8")


def documented_keys(heading):
    """First column of the table below a heading, without keys that few runs have."""
    section = decision_log_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    keys = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    return [key for key in keys if key not in {"rank", "launch_ns"}]


@pytest.mark.parametrize(("heading", "kind"), [("Steps", "step"), ("Requests", "req")])
def test_decision_log_document_shows_what_a_run_writes(simulate, heading, kind):
    """The table has the keys in their order; the example is the smoke scenario's first line."""
    smoke = DOCS.parent / "scenarios" / "smoke.yaml"
    assert simulate("run", smoke, "--decisions", "d.jsonl").code == 0
    lines = Path("d.jsonl").read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if line.startswith(f'{{"kind":"{kind}"'))
    assert documented_keys(heading) == list(json.loads(first))
    assert first in decision_log_text().splitlines()


def test_decision_log_comparison_finds_the_first_difference(simulate, python, scenario):
    """The document's program says at which step, and says nothing of equal decisions."""
    [program] = re.findall(r"```python\n(.*?)```", decision_log_text(), flags=re.DOTALL)
    simulate("run", scenario, "--decisions", "a.jsonl")

    def compared():
        ended = python("-c", program)
        assert ended.code == 0
        return ended.out

    # Other step times, the same decisions: nothing to report.
    lines = Path("a.jsonl").read_text(encoding="utf-8").splitlines()
    later = [re.sub(r'"t_end_ns":\d+', '"t_end_ns":7', line) for line in lines]
    Path("b.jsonl").write_text("\n".join(later), encoding="utf-8")
    assert compared() == ""
    later[3] = re.sub(r'"queue":\d+', '"queue":-1', later[3])
    later[5] = re.sub(r'"queue":\d+', '"queue":-1', later[5])
    Path("b.jsonl").write_text("\n".join(later), encoding="utf-8")
    assert compared().startswith("3 {'queue': (")


def rule_numbers(document):
    text = (DOCS / "explanation" / document).read_text(encoding="utf-8")
    return re.findall(r"^\*\*(\d+)\. ", text, re.MULTILINE)


def test_rules_cited_in_code_are_documented():
    """Every `rule N` of a docstring or comment is one of the family's document."""
    of_drafts = [number for number in rule_numbers("speculation.md") if number != "15"]
    of_sglang = sorted(rule_numbers("sglang.md") + of_drafts, key=int)
    of_vllm = rule_numbers("vllm.md") + rule_numbers("layer-groups.md")
    for numbers in (of_sglang, of_vllm):
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    for path in (DOCS.parent / "sim").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        numbers = (
            of_vllm if "docs/explanation/vllm.md" in text or "vllm" in path.parts else of_sglang
        )
        for cited in re.findall(r"\brules? (\d+)", text):
            assert cited in numbers, f"{path}: rule {cited}"


def test_tests_named_beside_vllms_own_exist():
    """In the file that is named, or else in the one named before."""
    text = (
        (DOCS / "explanation" / "vllm.md")
        .read_text(encoding="utf-8")
        .split("## vLLM's own tests\n")[1]
    )
    cells = [row.split("|")[3] for row in text.splitlines() if row.startswith("| ")][1:]
    source, num_tests = "", 0
    for name in re.findall(r"`([\w/]+(?:\.py)?)`", " ".join(cells)):
        if name.endswith(".py"):
            source = (DOCS.parent / "tests" / name).read_text(encoding="utf-8")
            continue
        assert f"def {name}(" in source, name
        num_tests += 1
    assert num_tests > 30
