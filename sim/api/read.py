"""Reads the body of a request."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sim.core.messages import printable_line

_MOST_BYTES = 64 << 20
_MOST_CHARACTERS = 200
# What pydantic says before the text of a ValueError.
_PREFIX = "Value error, "
B = TypeVar("B", bound=BaseModel)


class BadBodyError(Exception):
    """The body of a request is not what it should be."""


async def read_body(request: Request, kind: type[B]) -> B:
    """The body of a request.

    Raises:
        BadBodyError: it is no JSON, or something in it is wrong.
        HTTPException: it is too long.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, f"the body has more than {_MOST_BYTES >> 20} MiB")
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as wrong:
        first = wrong.errors(include_input=False)[0]
        # Not the types that were tried for a key of several, such as `list[int]`.
        place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
        reason = first["msg"].removeprefix(_PREFIX)
        text = f"{place}: {reason}" if place else reason
        raise BadBodyError(printable_line(text, _MOST_CHARACTERS)) from None
