"""Users' own schedule policies are found and used; their errors are reported in one line."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from sim.cli import main
from sim.commands.running.simulate import run_built
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.sglang.config import SchedulerConfig
from sim.sglang.user_rules import load_user_rule
from sim.testing.contracts import SchedulePolicyContract
from sim.user.objects import UserClass, fail_at_key

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "policies.md"
EXAMPLE = "my_policy:ShortestPromptFirst"
BUSY = ("--set", "scheduler.max_running_requests=2")
KEY = "study.yaml:17: scheduler.schedule_policy: "
POLICY = """\
from sim.sglang.policies.policy import CacheBlind

class Mine(CacheBlind):
    def order(self, waiting, view):
        {body}
"""


@pytest.fixture(autouse=True)
def no_module_stays():
    """Imports of one test are not seen by the next."""
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name in {"mine", "my_policy", "bundle", "bundle.inner"}:
            del sys.modules[name]


def blocks():
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def example(folder):
    """A file with the example of the documentation."""
    (folder / "my_policy.py").write_text(blocks()[0], encoding="utf-8")
    return EXAMPLE


@pytest.fixture
def with_policy(scenario):
    """study.yaml with this policy; returns the file's name."""

    def write(name):
        text = Path(scenario).read_text(encoding="utf-8")
        Path(scenario).write_text(text.replace("policy: lpm", f"policy: {name}"), encoding="utf-8")
        return scenario

    return write


@pytest.fixture
def mine(with_policy):
    """study.yaml with policy `mine:Mine`, whose `order` has this body."""

    def write(body):
        Path("mine.py").write_text(POLICY.format(body=body), encoding="utf-8")
        return with_policy("mine:Mine")

    return write


class TestExample(SchedulePolicyContract):
    """The documented example keeps the contract, in its guard too."""

    @pytest.fixture
    def make_policy(self, example, folder):
        named = UserClass(kind=example)
        make = load_user_rule("schedule_policy", named, folder, fail_at_key).make
        return lambda: make(SchedulerConfig())


def test_example_and_its_test_are_what_the_document_says(example, folder, monkeypatch):
    """Both run; the test names the example's class."""
    monkeypatch.syspath_prepend(folder)
    (test,) = [block for block in blocks() if "from my_policy import" in block]
    (folder / "test_my_policy.py").write_text(test, encoding="utf-8")
    names = runpy.run_path("test_my_policy.py")
    assert issubclass(names["TestShortestPromptFirst"], SchedulePolicyContract)


def test_example_serves_short_prompts_first(simulate, with_policy, example):
    """Under load the shortest third of prompts waits less than under first come first served."""
    waits = {}
    for policy in ("fcfs", example):
        path = with_policy("lpm")
        options = (*BUSY, "--set", f"scheduler.schedule_policy={policy}")
        assert simulate("run", path, *options, "--requests", "r.csv").code == 0
        header, *rows = [line.split(",") for line in Path("r.csv").read_text().splitlines()]
        prompt, wait = header.index("prompt_tokens"), header.index("queue_time_ms")
        short = sorted(rows, key=lambda row: int(row[prompt]))[:13]
        waits[policy] = sum(float(row[wait]) for row in short)
    assert waits[example] < 0.7 * waits["fcfs"]


def test_user_policy_run_is_the_same_step_by_step_and_when_replayed(simulate, with_policy, example):
    """Fast-forward changes nothing; `simulate compare` decides the log again."""
    path = with_policy(example)
    assert simulate("run", path, *BUSY, "--decisions", "a.jsonl", "--check").code == 0
    simulate("run", path, *BUSY, "--decisions", "b.jsonl", "--no-fast-forward")
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    ended = simulate("compare", "a.jsonl", path, *BUSY)
    assert (ended.code, ended.out.endswith("decided the same again\n")) == (0, True)
    ended = simulate("compare", "a.jsonl", path, *BUSY, "--set", "scheduler.schedule_policy=fcfs")
    assert "decided the same again" not in ended.out


def test_user_policy_copy_of_ours_decides_as_ours(simulate, with_policy, scenario):
    """The way a policy is loaded changes no decision."""
    text = "from sim.sglang.policies.policy import LongestPrefixMatch\n"
    Path("mine.py").write_text(f"{text}class Mine(LongestPrefixMatch): pass\n", encoding="utf-8")
    simulate("run", scenario, *BUSY, "--decisions", "a.jsonl")
    simulate("run", with_policy("mine:Mine"), *BUSY, "--decisions", "b.jsonl")
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()


def test_user_policy_in_a_package_and_another_folder_is_found_there(folder, with_policy):
    """Modules of one name in two scenarios' folders are told apart, packages included."""
    texts = {"one": "return list(waiting)", "two": "return list(waiting)[::-1]"}
    for name, body in texts.items():
        package = folder / name / "bundle"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("", encoding="utf-8")
        (package / "inner.py").write_text(POLICY.format(body=body), encoding="utf-8")
        path = with_policy("bundle.inner:Mine") if name == "one" else "study.yaml"
        (folder / name / "study.yaml").write_text(Path(path).read_text(encoding="utf-8"))
    options = ["scheduler.max_running_requests=2"]
    loaded = {name: load_scenario(folder / name / "study.yaml", options) for name in texts}
    first, second, again = (
        run_built(build(loaded[name])).requests.scheduled_ns.tolist()
        for name in ("one", "two", "one")
    )
    assert first == again != second
    assert loaded["one"].content_hash != loaded["two"].content_hash


def test_user_policy_with_priorities_is_used(simulate, with_policy, example):
    """Priorities decide who preempts; the order is the policy's."""
    path = with_policy(example)
    ended = simulate(
        "run", path, "--format", "json", "--set", "scheduler.enable_priority_scheduling=true"
    )
    assert json.loads(ended.out)["completed"] == 40


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere:Mine", "no module nowhere on Python's path or in "),
        ("json.nowhere:Mine", "no module json.nowhere on Python's path or in "),
        ("time:Mine", "module time has no source file"),
        ("my_policy:Mine", "no class Mine in "),
        ("my_policy:CacheBlind.x", "must be a name or module:Class, got "),
        ("my_policy:", "must be a name or module:Class, got 'my_policy:'"),
        ("my_policy:CacheBlind", "my_policy:CacheBlind is no policy: it needs a method order"),
        ("json:loads", "json:loads is no policy: it must be a class"),
        ("json:JSONDecodeError", "json:JSONDecodeError needs the setting doc, pos"),
    ],
)
def test_user_policy_that_is_none_is_refused(refused, with_policy, example, name, reason):
    """Module, class and signature: one line at the scenario's key."""
    line = refused(with_policy(f'"{name}"'))
    assert line.startswith(KEY)
    assert reason in line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class Mine(", "module mine cannot be imported: SyntaxError: "),
        (
            "1 / 0",
            "module mine cannot be imported: ZeroDivisionError: division by zero (mine.py:1)",
        ),
        ("class Mine:\n  def __init__(self, c):\n    c.x", "AttributeError: "),
        ("class Mine:\n  def order(self, waiting, view): pass", "matches_prefixes must be bool"),
        (
            "class Mine:\n  def order(self, waiting): pass",
            "needs a method order(self, waiting, view)",
        ),
    ],
)
def test_user_policy_that_cannot_be_made_is_refused(refused, with_policy, text, reason):
    """A module that fails and a class that fails are named."""
    Path("mine.py").write_text(text, encoding="utf-8")
    line = refused(with_policy("mine:Mine"))
    assert line.startswith(KEY)
    assert reason in line


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return waiting[0].nothing", "raised AttributeError: "),
        ("waiting.sort()", "raised AttributeError: 'tuple' object has no attribute 'sort'"),
        ("return None", "returned NoneType, not a list of requests"),
        ("return waiting[1:]", "not each of the 1 waiting ones once"),
        ("return [*waiting, waiting[0]]", "returned 2 requests, not each of the 1 waiting"),
        ("return [object() for _ in waiting]", "not each of the 1 waiting ones once"),
    ],
)
def test_user_policy_that_fails_while_running_is_named(refused, mine, body, reason):
    """What it raises and what it loses is the user's, in one line; no output file stays."""
    line = refused(mine(body))
    assert line.startswith(f"{KEY}mine:Mine.order ")
    assert reason in line
    assert "raised" not in reason or line.endswith("(mine.py:5)")


def test_user_policy_option_is_named_when_it_gave_the_policy(refused, mine, scenario):
    """A policy from `--set` is blamed there."""
    mine("return None")
    line = refused(scenario, "--set", "scheduler.schedule_policy=mine:Mine")
    assert line.startswith("--set scheduler.schedule_policy=mine:Mine: mine:Mine.order returned")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import sys; sys.exit(0)", "raised SystemExit: 0 (mine.py:5)"),
        ("raise type('E', (Exception,), {'__str__': lambda s: 1 / 0})", "raised E (mine.py:5)"),
    ],
)
def test_user_policy_cannot_end_a_run_in_silence(mine, simulate, body, reason):
    """Neither by an exit, nor by an error without words."""
    ended = simulate("run", mine(body))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(f"{KEY}mine:Mine.order {reason}\n")


def test_debug_shows_the_traceback_before_the_line(mine, capsys):
    """Only then; the exit code stays 2."""
    path = mine("raise KeyError('lost')")
    shown = {}
    for options in ((), ("--debug",)):
        assert main(["run", path, *options]) == 2
        shown[options] = capsys.readouterr().err.splitlines()
    says, error = shown[()]
    assert (
        says == f"servetwin: runs the code of {Path('mine.py').resolve()}, which the scenario names"
    )
    assert shown["--debug",][-1] == error
    assert "raise KeyError('lost')" in [line.strip() for line in shown["--debug",]]
