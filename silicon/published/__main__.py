"""Writes the tables of docs/published.md.

python -m silicon.published [--page]
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from silicon.page import write_board
from silicon.published.commands import SOURCES, board, outcome_of, published
from silicon.published.routers import routers_board
from silicon.published.stacks import stacks_board
from silicon.published.storage import storage_board
from silicon.published.tiers import tiers_board

_PAGE = Path(__file__).parents[2] / "docs/published.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m silicon.published", description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the tables of the page")
    parser.add_argument("--table", choices=_TABLES, help="only this one")
    arguments = parser.parse_args()
    for name in [arguments.table] if arguments.table else _TABLES:
        text = _TABLES[name]()
        sys.stdout.write(f"{text}\n\n")
        if arguments.page:
            write_board(name, text, _PAGE)


def _of_commands(source: str) -> str:
    return board([outcome_of(line, is_copy=copy) for line, copy in published(source)])


_TABLES: dict[str, Callable[[], str]] = {
    **{source: partial(_of_commands, source) for source in SOURCES},
    "aibrix-8xvllm": stacks_board,
    "llm-d-tiers": tiers_board,
    "llm-d-routers": routers_board,
    "llm-d-storage": storage_board,
}

if __name__ == "__main__":
    main()
