"""Dumps of many scrapes: a real server's, and files that are none."""

import gzip
from itertools import pairwise

import pytest

from sim.core.errors import InputError
from sim.families import known_metrics
from sim.server_metrics.scrape import read_dump
from tests.support.vllm_server import MEASURED

ONE = 'vllm:num_requests_running{engine="0"} 1.0\n'


def refused(path):
    with pytest.raises(InputError) as raised:
        list(read_dump(path, known_metrics()))
    return str(raised.value).removeprefix(str(path))


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "metrics.txt"
        path.write_text(text)
        return path

    return write


def test_a_dump_of_a_real_server_is_read_to_its_end():
    dump = MEASURED / "vllm-0.26-h100-llama-3.1-8b-faults" / "metrics.txt.gz"
    scrapes = list(read_dump(dump, known_metrics()))
    assert len(scrapes) == 84
    assert not any(scrape.missing for scrape in scrapes)
    first, last = scrapes[0], scrapes[-1]
    assert (last.at_us - first.at_us) // 10**6 == 84
    assert last.values["requests"] - first.values["requests"] == 864
    assert last.values["pool_tokens"] == 462_944
    assert not any(b.is_restarted(a) for a, b in pairwise(scrapes))


def test_what_comes_before_the_first_mark_may_be_comments_only(write):
    path = write(f"# recorded by a loop\n\n# scraped 5\n{ONE}# scraped 6\n{ONE}")
    assert [scrape.at_us for scrape in read_dump(path, known_metrics())] == [5, 6]
    assert refused(write(f"{ONE}# scraped 5\n{ONE}")).startswith(":1: comes before the first line")


def test_files_that_are_no_dumps_are_refused(write, tmp_path):
    assert "has no line `# scraped TIME`" in refused(write("# nothing\n"))
    assert refused(write(f"# scraped 5\n{ONE}# scraped 5\n{ONE}")) == ":3: time does not rise"
    assert "has no metric of a known engine" in refused(write("# scraped 5\nup 1\n"))
    assert "cannot be read" in refused(tmp_path / "missing.txt")
    packed = tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(f"# scraped 5\n{ONE}".encode())[:-9])
    assert refused(packed)


def test_an_endless_scrape_is_refused(write, monkeypatch):
    monkeypatch.setattr("sim.server_metrics.scrape._MAX_LINES", 3)
    assert refused(write(f"# scraped 5\n{ONE * 4}")) == ":5: is the 4th line of a scrape"
