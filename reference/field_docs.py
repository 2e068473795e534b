"""Reads the descriptions of a configuration model's fields: the string below each field.

They are read from the source, because Python drops such strings when it compiles a module.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from pydantic import BaseModel

from sim.compiled.finder import ROOT

_UNIT = " Unit: "


class FieldDoc(NamedTuple):
    """The description of a field, in sentences, and its unit, which may be empty."""

    meaning: str
    unit: str


def field_docs(model: type[BaseModel]) -> dict[str, FieldDoc]:
    """The documented fields of a model by name, those of its bases included."""
    bases = [base for base in reversed(model.__mro__) if issubclass(base, BaseModel)]
    return {name: doc for base in bases if base is not BaseModel for name, doc in _own_docs(base)}


def _own_docs(model: type[BaseModel]) -> Iterator[tuple[str, FieldDoc]]:
    for field, after in pairwise(_classes(model.__module__)[model.__name__].body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                meaning, _, unit = inspect.cleandoc(text).replace("\n", " ").partition(_UNIT)
                yield name, FieldDoc(meaning.strip(), unit.strip().removesuffix("."))


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module, by name."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}
