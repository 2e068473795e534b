"""Reads the body of a request."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sim.core.messages import shorten

_MOST_BYTES = 64 << 20
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
        first = wrong.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadBodyError(shorten(f"{place}: {first['msg']}" if place else first["msg"])) from None
