"""No regular expression takes more than linear time, whatever text it is given.

Texts come from files and clients of others. Every expression in the packages is found in their code
and judged by its structure; where it is not in the code, it is listed here with the reason.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.regex_cost import why_not_linear

ROOT = Path(__file__).parents[2]
PACKAGES = ("sim", "calibrate", "realrun", "silicon", "servetwin")
# Expressions that are put together when they are needed: file, code, and why they are linear.
MADE = {
    ("sim/latency/architectures/config_json.py", "translate(each)"): (
        "fnmatch's: each * is an atomic group; a module's name is short, and made by us"
    ),
    ("sim/sweep/capacity/candidates.py", "f'^(.*?: plan: |{place}: )'"): (
        "at the beginning only, with one repeat in each half; the rest is an escaped path"
    ),
    ("sim/sglang/log.py", "BEGIN"): (
        "at the beginning only; what comes before is at most 300 bytes, the rest has few repeats"
    ),
    ("sim/server_log/engine_log.py", "head"): (
        "a family's, at the beginning only; what comes before it is at most 300 bytes"
    ),
    ("sim/server_log/engine_log.py", "piece.pattern"): "of a table: words, and a limited number",
    ("sim/server_log/engine_log.py", "expression"): (
        "the two above with commas between; an unknown value gives no byte back"
    ),
    ("realrun/testing/flashinfer_contract.py", "f'\\\\b{name}\\\\(([^;{{]*?)\\\\)\\\\s*[;{{]'"): (
        "its text is that of an installed package, which is trusted"
    ),
}
# Other modules that match patterns, and why that is linear.
OTHER_MODULES = {
    ("sim/latency/architectures/config_json.py", "fnmatch"): "see above",
    ("sim/latency/architectures/config_json.py", "re2"): "RE2 is linear for every expression",
}
MATCHING = {"re", "regex", "re2", "fnmatch", "glob", "sre_compile", "sre_parse"}
FROM_THE_BEGINNING = {"match", "fullmatch"}
FUNCTIONS = {
    "compile",
    "search",
    "split",
    "findall",
    "finditer",
    "sub",
    "subn",
    *FROM_THE_BEGINNING,
}
# Methods of pandas' `Series.str` that take an expression.
PANDAS = {"contains", "count", "extract", "extractall", "findall", "fullmatch", "match"}


class Use(NamedTuple):
    """An expression in the code; `node` is its code, `flags` that of its flags."""

    node: ast.expr
    flags: ast.expr | None
    searches: bool


def uses(tree: ast.Module) -> Iterator[Use]:
    """All expressions of a module, with whether they are searched for anywhere in a text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        given = {each.arg: each.value for each in node.keywords}
        if "pattern" in given:  # of pydantic's fields
            yield Use(given["pattern"], None, searches=True)
        match node.func:
            case ast.Attribute(ast.Name("re"), name) if name in FUNCTIONS:
                flags = given.get("flags")
                if name == "compile":
                    flags = node.args[1] if len(node.args) > 1 else flags
                    searches = not all(used in FROM_THE_BEGINNING for used in methods(tree, node))
                else:
                    searches = name not in FROM_THE_BEGINNING
                yield Use(node.args[0], flags, searches)
            case ast.Attribute(ast.Attribute(attr="str"), name) if name in PANDAS:
                yield Use(node.args[0], None, searches=True)


def methods(tree: ast.Module, compiled: ast.Call) -> list[str]:
    """How a module uses the expression that a call compiles; `passed on`: in an unknown way."""
    names = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and node.value is compiled
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    of_names = [node for node in ast.walk(tree)
                if isinstance(node, ast.Name) and node.id in names
                and isinstance(node.ctx, ast.Load)]  # fmt: skip
    called = [node.attr for node in ast.walk(tree)
              if isinstance(node, ast.Attribute) and node.value in of_names]  # fmt: skip
    return called if called and len(called) == len(of_names) else [*called, "passed on"]


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The modules that match patterns, by line, but for a plain `import re`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {each.name for each in node.names if each.name != "re" or each.asname}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = {str(node.module)}
        else:
            continue
        yield from ((node.lineno, name) for name in names & MATCHING)


def problems(file: str, tree: ast.Module, seen: set[tuple[str, str]]) -> Iterator[str]:
    """What is wrong in a module; `seen` gets the listed exceptions that it has."""
    for line, module in imported(tree):
        seen.add((file, module))
        if (file, module) not in OTHER_MODULES:
            yield f"{file}:{line}: imports {module}: write `import re`, or list it"
    for use in uses(tree):
        where = f"{file}:{use.node.lineno}"
        if isinstance(use.node, ast.Constant) and isinstance(use.node.value, str | bytes):
            pattern = use.node.value
            why = why_not_linear(pattern, flags=flags_of(use.flags), searches=use.searches)
            if why is not None:
                yield f"{where}: {pattern!r}: {why}"
        else:
            made = (file, ast.unparse(use.node))
            seen.add(made)
            if made not in MADE:
                yield f"{where}: {made[1]} is put together: say in MADE why it is linear"


def flags_of(node: ast.expr | None) -> int:
    """Such as `re.ASCII | re.IGNORECASE`."""
    flags = re.NOFLAG
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Attribute):
            flags |= re.RegexFlag[part.attr]
    return flags


def test_every_expression_of_the_packages_is_linear():
    seen: set[tuple[str, str]] = set()
    found = [
        problem
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for problem in problems(
            str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8")), seen
        )
    ]
    assert found == []
    assert seen == MADE.keys() | OTHER_MODULES.keys()


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("re.search(r'\\s*=', text)", "a search and the repeat of"),
        ("re.match(r'\\s*=', text)", None),
        ("A = re.compile(r'\\s*='); A.match(text)", None),
        ("A = re.compile(r'\\s*='); A.match(text); A.sub('', text)", "a search and the repeat of"),
        ("A = re.compile(r'\\s*='); use(A)", "a search and the repeat of"),
        ("re.match('s+S+x', text, flags=re.IGNORECASE)", "the repeat of 'Ss"),
        ("re.match('s+S+x', text)", None),
        ("re.match(rb'a*[ab]*c', text)", "the repeat of 'a' and the repeat of 'ab'"),
        ("Field(pattern='^(a+)+$')", "a repeat in a repeat"),
        ("column.str.extract('(.*)x')", "a search and the repeat of"),
        ("re.match(given, text)", "given is put together"),
        ("from re import match", "imports re"),
        ("import re as expressions", "imports re"),
        ("import glob", "imports glob"),
    ],
)
def test_expressions_are_found_wherever_they_are(code, problem):
    found = list(problems("file.py", ast.parse(code), set()))
    assert found == [] if problem is None else len(found) == 1 and problem in found[0]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a*)*b",
        "(a|a)*b",
        "(a|ab|b)*c",
        "(?:a?){20}b",
        "x*y?x*z",
        ".*: .*;",
        r"\d+\w+x",
        r"(\w+\s?)+$",
        "(?=a*b)a",
        r"(.)\1*",
        "(?i:a)+A+b",
    ],
)
def test_expressions_that_are_not_linear_are_known(pattern):
    """With a text that is no match they take quadratic or exponential time, or are not judged."""
    assert why_not_linear(pattern, searches=False) is not None


@pytest.mark.parametrize(
    ("pattern", "linear_search"),
    [
        (r"\s*=", False),
        (r"\[(.*)\]", False),
        (r"(\.gz|\.log)+$", False),
        (r"^\s*=", True),
        (r"=\s*", True),
        (r"'[^']*'", True),
        ("((?: w[0-9a-f]{1,10})+)", True),
        (r"(?:^|\D)(\d+)$", True),
    ],
)
def test_search_begins_at_every_character(pattern, linear_search):
    """So what it reads before it fails is read again and again."""
    assert why_not_linear(pattern, searches=False) is None
    assert (why_not_linear(pattern) is None) is linear_search
