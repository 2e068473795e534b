"""Results as HTML for notebooks, and data frames of them."""

from collections.abc import Iterable
from html import escape
from types import ModuleType

from sim.core.errors import InputError
from sim.tables.table import Table


def html_of(heading: str, tables: Iterable[Table], remarks: Iterable[str] = ()) -> str:
    """A heading, tables, and a line for each remark."""
    parts = [f"<b>{escape(heading)}</b>", *(table.html_table() for table in tables)]
    parts += [f"<p>{escape(remark)}</p>" for remark in remarks]
    return "\n".join(parts)


def frames() -> ModuleType:
    """The module that makes data frames.

    Raises:
        InputError: pandas is not installed.
    """
    try:
        from servetwin import frames as module
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        from sim.extras import how_to_install

        raise InputError(f"a data frame needs pandas: {how_to_install('notebook')}") from None
    return module
