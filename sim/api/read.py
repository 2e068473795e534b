"""Reads the body of a request."""

import asyncio
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sim.core.messages import printable_line

# How long a client may take to send a body, in seconds.
BODY_LIMIT_S = 60.0
_MOST_BYTES = 64 << 20
# What is left of a refused body is not read.
_CLOSE = {"Connection": "close"}
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
        HTTPException: it is too long, or does not come in time (`body_limit_s` of the app's state).
    """
    body = bytearray()
    limit_s = request.app.state.body_limit_s
    try:
        async with asyncio.timeout(limit_s):
            async for part in request.stream():
                body += part
                if len(body) > _MOST_BYTES:
                    reason = f"the body has more than {_MOST_BYTES >> 20} MiB"
                    raise HTTPException(413, reason, _CLOSE)
    except TimeoutError:
        raise HTTPException(408, f"the body took more than {limit_s:g} s", _CLOSE) from None
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as wrong:
        first = wrong.errors(include_input=False)[0]
        # Not the types that were tried for a key of several, such as `list[int]`.
        place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
        reason = first["msg"].removeprefix(_PREFIX)
        text = f"{place}: {reason}" if place else reason
        raise BadBodyError(printable_line(text, _MOST_CHARACTERS)) from None
