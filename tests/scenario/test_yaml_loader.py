"""Strict YAML: what scalars mean, where keys are, and what is refused."""

import pytest

from sim.core.errors import InputError
from sim.scenario.strict_yaml import MAX_BYTES, parse_yaml_mapping, parse_yaml_value, read_yaml_file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1E+3", 1000.0),
        ("0", 0),
        ("-0", 0),
        ("+12", 12),
        ("9223372036854775807", 2**63 - 1),
        ("0.0e-999", 0.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("[1, a, {b: 2.0}]", [1, "a", {"b": 2.0}]),
        ("'1'", "1"),
        ('"true"', "true"),
    ],
)
def test_value_in_core_types_is_that_value(text, value):
    """Numbers, booleans, null, lists and mappings are read as YAML 1.2 reads them."""
    read = parse_yaml_value(text, "x")
    assert read == value
    assert type(read) is type(value)


YAML_1_1 = (
    "12:30 off on yes no y n True NULL 0x10 0o17 0b1 1_000 2026-01-31 nan inf 1e 1.2.3 = e5 ."
)


@pytest.mark.parametrize("text", [*YAML_1_1.split(), "2026-01-31 10:00:00"])
def test_plain_scalar_of_yaml_1_1_stays_text(text):
    """What PyYAML would convert, and what merely resembles a number, is text."""
    assert parse_yaml_value(text, "x") == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("012", "012 begins with a zero: drop the zero if it is a number, quote it if it is text"),
        ("-00.5",
         "-00.5 begins with a zero: drop the zero if it is a number, quote it if it is text"),
        (".nan", ".nan is not a finite number"),
        ("-.INF", "-.INF is not a finite number"),
        ("9223372036854775808", "9223372036854775808 is too large: whole numbers end at 2**63 - 1"),
        ("-" + "9" * 5000, f"-{'9' * 26}... is too large: whole numbers end at 2**63 - 1"),
        ("1e999", "1e999 is too large for a floating-point number"),
        ("1e-999", "1e-999 is too small for a floating-point number"),
        ("&a 1", "anchors and aliases (& and *) are not supported"),
        ("*a", "anchors and aliases (& and *) are not supported"),
        ("!!python/name:os.system",
         "tags (tag:yaml.org,2002:python/name:os.system) are not supported"),
        ("{<<: {a: 1}}", "merge keys (<<) are not supported"),
        ("{[1]: 2}", "a key must be text, not a list or a mapping"),
        ("{'': 2}", "a key is empty"),
        ("{a: 1, a: 2}", "duplicate key 'a', first given on line 1"),
        ('"\\0"', "a character here is not allowed in text"),
        ('"\\ud800"', "a character here is not allowed in text"),
        ('"\\UFFFFFFFF"', "not valid YAML: an impossible character"),
        ("\x07", "a character here is not allowed"),
        ("[" * 100, "nested deeper than 64 levels"),
        ("[1", "not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: b: c", "not valid YAML: mapping values are not allowed here"),
    ],
)  # fmt: skip
def test_value_that_could_be_misread_is_refused(text, reason):
    """The message is the place, then exactly this reason."""
    with pytest.raises(InputError) as caught:
        parse_yaml_value(text, "x")
    assert str(caught.value) == f"x: {reason}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: is empty"),
        ("# nothing\n---\n", "f: is empty"),
        ("\n- 1\n", "f:2: the top level must be a mapping of keys to values"),
        ("word", "f:1: the top level must be a mapping of keys to values"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "f:4: duplicate key 'c', first given on line 3"),
        ("a: 1\n---\nb: 1\n", "f:2: a second document begins here: one is allowed"),
        ("a:\n\tb: 1\n", "f:2: a tab where YAML allows only spaces"),
        ("a: 1\nb: @x\n", "f:2: not valid YAML: found character '@' that cannot start any token"),
        ("a: 1\nb: [1,\nc: 2\n",
         ("f:4: not valid YAML: expected ',' or ']', but got '<stream end>' (while parsing a"
          " flow sequence begun on line 2)")),
        ('a: 1\nb: "x\n',
         ("f:3: not valid YAML: found unexpected end of stream (while scanning a quoted scalar"
          " begun on line 2)")),
    ],
)  # fmt: skip
def test_document_that_is_malformed_is_refused_with_its_line(text, message):
    """Syntax errors and repeated keys name the line."""
    with pytest.raises(InputError) as caught:
        parse_yaml_mapping(text, "f")
    assert str(caught.value) == message


def test_document_keys_are_text_and_have_lines():
    """A key is text as written, and every key and list item has its line, in document order."""
    document = parse_yaml_mapping("on: 1\n7:\n  - x\n  - y: {z: 2}\n", "f")
    assert document.value == {"on": 1, "7": ["x", {"y": {"z": 2}}]}
    assert list(document.lines.items()) == [
        ((), 1),
        (("on",), 1),
        (("7",), 2),
        (("7", 0), 3),
        (("7", 1), 4),
        (("7", 1, "y"), 4),
        (("7", 1, "y", "z"), 4),
    ]


def test_file_that_cannot_be_read_is_refused(tmp_path):
    """Missing, a folder, not UTF-8, too large, an impossible name: one line each."""
    latin, large = tmp_path / "latin.yaml", tmp_path / "large.yaml"
    latin.write_bytes(b"a: 1\nname: caf\xe9\n")
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    expected = {
        tmp_path / "none.yaml": "none.yaml: no such file",
        tmp_path: ": is a folder, not a file",
        latin: "latin.yaml:2: not UTF-8 text",
        large: "large.yaml: larger than 1,048,576 bytes: not a scenario file",
        latin / "below": "below: cannot be read: Not a directory",
    }
    for path, message in expected.items():
        with pytest.raises(InputError) as caught:
            read_yaml_file(path)
        assert str(caught.value).endswith(message)
        assert str(caught.value).startswith(str(path))


def test_file_with_byte_order_mark_and_crlf_is_read(tmp_path):
    """What Windows editors write is fine."""
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: x\r\n")
    assert parse_yaml_mapping(read_yaml_file(path), "f").value == {"a": 1, "b": "x"}
