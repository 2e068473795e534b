"""Reads the descriptions of a configuration model's fields: the string below each field.

They are read from the source, because Python drops such strings when it compiles a module.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from pydantic import BaseModel

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
    source = ast.parse(textwrap.dedent(inspect.getsource(model)))
    (body,) = (node.body for node in source.body if isinstance(node, ast.ClassDef))
    for field, after in pairwise(body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                meaning, _, unit = inspect.cleandoc(text).replace("\n", " ").partition(_UNIT)
                yield name, FieldDoc(meaning.strip(), unit.strip().removesuffix("."))
