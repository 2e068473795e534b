"""Pages that list every key of a scenario with its type, unit, default and meaning."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from reference.doc_links import relative, with_links
from reference.field_docs import field_docs
from reference.key_layout import PAGES, KeyPage, Section
from reference.key_types import default_in_words, type_in_words
from reference.tables import keys_table

FOLDER = "reference/keys"
_HEADER = ("key", "type and default", "meaning")


def key_pages() -> dict[str, str]:
    """The text of each page, by its path below `docs`."""
    places = {model.__name__: place for model, place in _places()}
    return {_path(page): _page_text(page, places) for page in PAGES}


def described_models() -> set[str]:
    """Names of the models that the pages describe."""
    return {model.__name__ for model, _ in _places()}


def _places() -> Iterator[tuple[type[BaseModel], tuple[str, str]]]:
    """Each described model with the page and the title of its section."""
    for page in PAGES:
        for section in page.sections:
            for model in section.models:
                yield model, (_path(page), section.title)


def _path(page: KeyPage) -> str:
    return f"{FOLDER}/{page.name}.md"


def _page_text(page: KeyPage, places: dict[str, tuple[str, str]]) -> str:
    path = _path(page)
    notation = relative("reference/scenario.md", path)
    blocks = [
        f"# {page.title}",
        f"[Scenario files]({notation}) explains the file format and how types are written here.",
    ]
    for section in page.sections:
        blocks += _section_blocks(section, path, places)
    return "\n\n".join(blocks) + "\n"


def _section_blocks(
    section: Section, path: str, places: dict[str, tuple[str, str]]
) -> Iterator[str]:
    yield f"## {section.title}"
    for model in section.models:
        schema = model.model_json_schema()
        kind = schema["properties"].get("kind", {}).get("const")
        if kind is not None:
            yield f"### {section.title}, kind {kind}"
        yield with_links(_description(model), path)
        if rows := list(_rows(model, schema, path, places)):
            yield keys_table(_HEADER, rows)


def _description(model: type[BaseModel]) -> str:
    paragraphs = (model.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(text.split()) for text in paragraphs)


def _rows(
    model: type[BaseModel], schema: dict[str, Any], path: str, places: dict[str, tuple[str, str]]
) -> Iterator[tuple[str, ...]]:
    def link_to(name: str) -> str:
        page, title = places[name]
        anchor = title.replace(",", "").replace(" ", "-")
        return f"[{title}]({'' if page == path else relative(page, path)}#{anchor})"

    docs = field_docs(model)
    required = schema.get("required", ())
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key == "kind":
            continue
        type_words = f"{type_in_words(schema['properties'][key], link_to)} {docs[name].unit}"
        default = default_in_words(schema["properties"][key], is_required=key in required)
        meaning = with_links(docs[name].meaning, path)
        yield f"`{key}`", f"{type_words.strip()}<br>{default}", meaning
