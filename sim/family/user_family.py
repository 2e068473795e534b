"""A scheduler family of the user's own: `family: module:Class` (docs/how-to/plug-in.md#family).

The keys of the section `scheduler` are those of the family's section. So its code runs when a
scenario is validated, and only where the scenario is the user's own (`FamilyFolder`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from sim.core.errors import InputError, KeyPath
from sim.family import Family
from sim.family.section import ServerSection
from sim.user.modules import find_module
from sim.user.objects import ClassKind, UserClass, check_name, in_words, load_class, names_class

_KIND = ClassKind("family", "", {})
_KEY: KeyPath = ("scheduler", "family")
# By name, with the file that it was loaded from.
_LOADED: dict[str, tuple[Path, Family | None]] = {}


class FamilyFolder(NamedTuple):
    """The context of a validation that may load a family: where its module is looked for."""

    folder: Path


class OrUserFamily:
    """Annotates the section `scheduler`: a family with a colon is loaded, and has its section."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        others = handler(source)
        dump = core_schema.wrap_serializer_function_ser_schema(_dump, schema=others, info_arg=True)
        return core_schema.with_info_wrap_validator_function(_validate, others, serialization=dump)


def user_family(name: str) -> Family | None:
    """The loaded family of this name; None: there is none."""
    return _LOADED[name][1] if name in _LOADED else None


def _validate(
    value: Any, handler: Callable[[Any], Any], info: ValidationInfo
) -> ServerSection | Any:
    name = value.get("family") if isinstance(value, dict) else None
    if not isinstance(name, str) or not names_class(name):
        return handler(value)
    check_name(name)
    if not isinstance(info.context, FamilyFolder):
        raise ValueError(f"{name} is Python code: it runs only with --user-code")
    try:
        section = load_family(name, info.context.folder).section()
    except InputError as error:
        raise ValueError(error.reason) from None  # pydantic adds the key
    try:
        made = section.model_validate(value)
        made.model_dump_json()  # as hashes and logs need it
    except ValidationError:
        raise
    except Exception as error:
        raise ValueError(f"{name} raised {in_words(error)}") from error
    return made


def _dump(value: Any, handler: Callable[[Any], Any], info: Any) -> Any:
    if isinstance(value, ServerSection) and names_class(value.family):
        return value.model_dump(mode=info.mode)
    return handler(value)


def load_family(name: str, folder: Path) -> Family:
    """The family of this name. Its class is loaded once.

    `name` is `module:Class`; `folder` is searched after Python's own path.
    """
    source = find_module(name.partition(":")[0], folder)
    before, family = _LOADED.get(name, (source, None))
    if before != source:
        raise InputError(f"another {name} is loaded already, from {before}", key=_KEY)
    # Also if it is loaded already: this raises if the command may not run the user's code.
    loaded = load_class(UserClass(kind=name), _KIND, key=_KEY, folder=folder)
    if family is not None:
        return family
    made = loaded.make().instance
    if not isinstance(made, Family):
        raise loaded.refuse("it must be derived from sim.family.Family")
    with loaded.guarded("section"):
        section = made.section()
    if not isinstance(section, type) or not issubclass(section, ServerSection):
        raise loaded.refuse("its section must be derived from sim.family.section.ServerSection")
    _LOADED[name] = source, made
    return made
