"""The options of both `serve` commands that say where to listen, and whom to answer."""

import re
from dataclasses import dataclass
from typing import Annotated

import typer

from sim.core.errors import InputError

_KEY_VARIABLE = "SERVETWIN_API_KEY"


def _checked_names(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        if name != "*" and not re.fullmatch(r"(\*\.)?[\w.:-]*\w", name):
            raise InputError(f"--allowed-host {name}: must be a host name, *.DOMAIN or *")
    return names


def _checked_key(key: str | None) -> str | None:
    """A key that fits into a header."""
    if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
        where = f"--api-key, or {_KEY_VARIABLE}"
        raise InputError(f"{where}: must have printable ASCII characters, and no space")
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens, and whom it answers.

    Attributes:
        port: the port; 0: a free one.
        allowed_host: host names by which clients may call the server, besides IP addresses and
            private names such as `a.local` (see `Guard`).
        api_key: what clients must send; None: nothing.
    """

    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65_535, help="port; 0: any free one")] = 8000
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            callback=_checked_names,
            help="public host name, or *.DOMAIN, by which clients may call the server; may be"
            " repeated; *: any, also pages of other sites",
        ),
    ] = None
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar=_KEY_VARIABLE,
            metavar="KEY",
            callback=_checked_key,
            help="key that clients must send; better in the environment, where others do not see"
            " it; default: none",
        ),
    ] = None
