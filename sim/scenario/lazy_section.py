"""Sections that few scenarios have: their models are imported when a scenario has one."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, slots=True)
class LazySection:
    """An annotation: the value is the model `name` of `module`, imported on first use.

    Errors are those of a field that is annotated with the model itself.
    """

    module: str
    name: str

    def model(self) -> type[BaseModel]:
        found: type[BaseModel] = getattr(import_module(self.module), self.name)
        return found

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        model = self.model()
        model.model_rebuild()
        return handler(model.__pydantic_core_schema__)

    def _validate(self, value: Any) -> BaseModel:
        return self.model().model_validate(value)
