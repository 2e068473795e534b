"""The shape of the source tree: small files, each with a docstring."""

from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("sim", "servetwin", "calibrate", "realrun", "bench")
MODULES = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))


def num_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def test_layout_no_file_is_longer_than_400_lines():
    """A file that grows past this has more than one job."""
    long = {str(path): num_lines(path) for path in [*MODULES, *TESTS] if num_lines(path) > 400}
    assert not long


def test_layout_half_of_the_modules_are_within_200_lines():
    """The usual file is read in one go; empty package files do not count."""
    assert median(num_lines(path) for path in MODULES if path.name != "__init__.py") <= 200


def test_layout_every_file_says_what_it_is_for():
    """The first statement of a file is its docstring."""
    for path in (*MODULES, *TESTS):
        assert path.read_text(encoding="utf-8").startswith(('"""', 'r"""')), path
