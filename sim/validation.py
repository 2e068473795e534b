"""How data from outside are checked: the base of all sections, and types of files that are read."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from inspect import get_annotations
from types import ModuleType, NoneType, new_class
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from sim.compiled.finder import ROOT
from sim.core.declared import Flag
from sim.core.errors import InputError, describe, dotted
from sim.core.flags import flag_of


class KeysError(ValueError):
    """Raised by a section's validators: the values of several keys contradict each other."""

    def __init__(self, reason: str, *keys: str) -> None:
        """Take the reason and the keys; the error is shown at the first key that the file has."""
        super().__init__(reason)
        self.keys = keys


class WholeModel(BaseModel):
    """Unknown keys, values of a wrong type, infinities and NaN are errors."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        # Build a validator only for models of which there is a value.
        defer_build=True,
    )


# Whether the schema of a model is being made: a model that is met meanwhile is a part of it.
_IS_PART: ContextVar[bool] = ContextVar("is_part", default=False)


class StrictModel(WholeModel):
    """A `WholeModel` that may be a part of another one, without becoming part of its validator.

    As a part it has a validator of its own, which is built with its first value: most runs have
    values of few sections.

    A tuple field needs `Field(strict=False)`, so that a list is accepted: YAML has no tuples.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if _IS_PART.get():
            ref = f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"
            return {**lazy_schema(lambda: cls, cls.__name__), "ref": ref}
        before = _IS_PART.set(True)
        try:
            return handler(source)
        finally:
            _IS_PART.reset(before)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        is_lazy = schema["type"] == "function-plain"
        return handler(whole_schema(cls) if is_lazy else schema)


def lazy_schema(find: Callable[[], type[BaseModel]], name: str) -> CoreSchema:
    """The schema of a model that `find` loads with the first value; `name` is for errors."""

    def validate(value: Any, info: ValidationInfo) -> BaseModel:
        return find().model_validate(value, context=info.context)

    validate.__name__ = name
    dump = core_schema.simple_ser_schema("any")
    return core_schema.with_info_plain_validator_function(validate, serialization=dump)


def whole_schema(model: type[BaseModel]) -> CoreSchema:
    """The schema of a model itself, for its description as JSON."""
    model.model_rebuild()
    return model.__pydantic_core_schema__


class ByKind:
    """Annotates a union of sections: the key `kind` says which of them a value is."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        choices = {
            get_args(section.model_fields["kind"].annotation)[0]: handler.generate_schema(section)
            for section in get_args(source)
        }
        dump = core_schema.simple_ser_schema("any")
        return core_schema.tagged_union_schema(choices, "kind", serialization=dump)


# What was written by another version may have further keys.
OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

# Sums and differences of such times, and sums of such counts, fit 64 bits.
TimeNs = Annotated[int, Field(ge=0, le=1 << 61)]
Count = Annotated[int, Field(ge=0, le=1 << 40)]
# No metric comes near the ends, and no sum or axis of such numbers is out of range.
MetricNumber = Annotated[float, Field(ge=-1e18, le=1e18)]
Number = Annotated[float, Field(ge=0, le=float(1 << 61))]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must have characters that can be printed only")
    return text


# Names that logs and tables have. A file that is read has no others, and neither may a scenario.
Printable = Annotated[str, AfterValidator(_printable)]
PrintableName = Annotated[str, Field(min_length=1), AfterValidator(_printable)]


def check(adapter: TypeAdapter[Any], value: object, where: str) -> None:
    """Check a value.

    `value` is as JSON has it; `where` is `file` or `file:line`, for the error.

    Raises InputError: `where: key: reason`, the first key that is wrong.
    """
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = dotted(first["loc"])
        raise InputError(f"{where}: {f'{key}: ' if key else ''}{_reason(first)}") from None


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "missing":
        return "missing"
    text = re.sub(r"^\w+ should", "must", str(error["msg"])).removeprefix("Value error, ")
    text = re.sub(r" after validation, not \d+$", "", text)
    return f"{text}, got {describe(error['input'])}"


Base = TypeVar("Base", bound=BaseModel)


def keys_of(settings: type, base: type[Base]) -> type[Base]:
    """A base class of a section: `base`, and the fields of a settings class as its keys."""
    declared = getattr(_source_of(settings.__module__), settings.__name__)
    body = {
        "__module__": settings.__module__,
        "__qualname__": settings.__qualname__,
        # The section says which family it is; the key comes first.
        "__annotations__": {"family": str, **get_annotations(declared)},
        **{field.name: field.default for field in fields(declared)},
    }
    keys: type[Base] = new_class(
        settings.__name__, (base,), exec_body=lambda names: names.update(body)
    )
    return keys


def _source_of(name: str) -> ModuleType:
    """A module as its source says it: classes that are compiled have lost their annotations."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    loader = SourceFileLoader(name, str(path))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    loader.exec_module(module)
    return module


class LaunchKeys(NamedTuple):
    """Keys of a section by how a launch command says them.

    Attributes:
        section: the section.
        options: keys of flags with a value; those that are always given come first.
        switches: keys of flags without one.
        variables: environment variables by key.
        always: keys that are given even if they have the default.
        since: by key, the first version that has it, if not all versions have it.
    """

    section: type[BaseModel]
    options: tuple[str, ...]
    switches: tuple[str, ...]
    variables: dict[str, str]
    always: frozenset[str]
    since: dict[str, str]

    def is_changed(self, values: BaseModel, key: str) -> bool:
        return bool(getattr(values, key) != self.section.model_fields[key].default)

    def given(
        self, values: BaseModel, keys: Iterable[str], searched: Collection[str]
    ) -> Iterator[str]:
        """Those of `keys` that a command gives: the always given, the changed and the searched."""
        for key in keys:
            is_searched = key in searched and getattr(values, key) is not None
            if key in self.always or is_searched or self.is_changed(values, key):
                yield key

    @property
    def flags(self) -> dict[str, str]:
        """The keys of options by their flags, without the dashes."""
        return {flag_of(key)[2:]: key for key in self.options}


@cache
def launch_keys(section: type[BaseModel]) -> LaunchKeys:
    """How a launch command sets the keys of a section."""
    flags = {key: _flag(field.metadata) for key, field in section.model_fields.items()}
    options: list[str] = []
    switches: list[str] = []
    for key, field in section.model_fields.items():
        if flags[key].flag and not flags[key].variable:
            (switches if _is_switch(field.annotation) else options).append(key)
    return LaunchKeys(
        section,
        tuple(sorted(options, key=lambda key: not flags[key].always)),
        tuple(switches),
        {key: each.variable for key, each in flags.items() if each.variable},
        frozenset(key for key, each in flags.items() if each.always),
        {key: each.since for key, each in flags.items() if each.since},
    )


def measured_keys(section: type[BaseModel], settings: type) -> tuple[str, ...]:
    """The fields of a settings class that are taken from the flags of a measured server."""
    of_section = section.model_fields
    flags = {field.name: _flag(of_section[field.name].metadata) for field in fields(settings)}
    return tuple(key for key, each in flags.items() if each.measured and not each.variable)


def _flag(metadata: list[Any]) -> Flag:
    return next((each for each in metadata if isinstance(each, Flag)), Flag())


def _is_switch(annotation: Any) -> bool:
    return annotation is bool or set(get_args(annotation)) == {bool, NoneType}
