"""A server is asked for one page, now and then; one that is away is tried again."""

from itertools import islice

import pytest

from calibrate.watch.source import Away, Clock, Late, fetch, metrics_url, scrapes
from sim.core.errors import InputError
from tests.calibrate.watch.conftest import serving

TEXT = 'vllm:num_requests_running{engine="0"} 1.0\n'


class FakeClock:
    """Time that passes only while somebody sleeps, or an answer is made."""

    def __init__(self):
        self.now_s = 1_000.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(round(seconds, 6))
        self.now_s += seconds

    @property
    def clock(self):
        return Clock(lambda: round(self.now_s * 1e9), lambda: self.now_s, self.sleep)


def asked(answers, num, every_s=2.0):
    """The first scrapes of a server with these answers, each after the seconds that it names."""
    fake = FakeClock()
    left = iter(answers)

    def answer(_url):
        took_s, text = next(left)
        fake.now_s += took_s
        return text

    found = list(islice(scrapes("http://x/metrics", every_s, fetch=answer, clock=fake.clock), num))
    return found, fake.slept


def test_scrapes_come_as_often_as_asked_for():
    found, slept = asked([(0.1, TEXT)] * 3, 3)
    assert [scrape.at_us for scrape in found] == [1_000_100_000, 1_002_100_000, 1_004_100_000]
    assert slept == [1.9, 1.9]


def test_a_server_that_answers_slowly_is_asked_less_often():
    _, slept = asked([(0.1, TEXT), (1.0, TEXT), (0.1, TEXT)], 3)
    assert slept == [1.9, 10.0]


def test_an_answer_that_comes_late_is_told_before_it():
    """By what the last answers took: five must be known, and a slow server is not late."""
    quick, slow = (0.02, TEXT), (1.5, TEXT)
    found, _ = asked([*[quick] * 5, slow, quick], 8)
    assert [place for place, each in enumerate(found) if isinstance(each, Late)] == [5]
    assert found[5] == Late(pytest.approx(1.5), pytest.approx(0.02))
    assert not any(isinstance(each, Late) for each in asked([*[quick] * 4, slow], 5)[0])
    usually_slow = [(0.3, TEXT)] * 6
    assert not any(isinstance(each, Late) for each in asked([*usually_slow, slow], 7)[0])


def test_a_server_that_is_away_is_tried_again():
    found, _ = asked([(0, Away("Connection refused")), (0, TEXT), (0, "<html>"), (0, TEXT)], 4)
    assert found[0] == Away("Connection refused")
    assert found[1].values == {"running": 1.0}
    assert found[2] == Away("has no metric of a known engine now")
    assert found[3].family == "vllm"


def test_another_program_than_a_server_of_a_known_engine_is_refused():
    with pytest.raises(InputError, match=r"^--url http://x/metrics: has no metric of a known"):
        asked([(0, "go_goroutines 8\n")], 1)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000/metrics"),
        ("http://localhost:8000/", "http://localhost:8000/metrics"),
        ("https://a.example/b/metrics?x=1", "https://a.example/b/metrics"),
    ],
)
def test_the_address_may_be_the_servers_or_the_pages(given, url):
    assert metrics_url(given) == url


@pytest.mark.parametrize(
    "bad", ["localhost:8000", "file:///etc/passwd", "http://", "http://a b", "http://[::1", "x\n",
            "http://a:99999"],
)  # fmt: skip
def test_what_is_no_address_of_a_web_server_is_refused(bad):
    with pytest.raises(InputError, match=r"(?s)^--url .*: must be an address"):
        metrics_url(bad)


def test_a_real_server_is_read_and_what_fails_is_said():
    with serving([TEXT, None]) as url:
        assert fetch(url) == TEXT
        assert fetch(url) == Away("answers 500 Internal Server Error")
    refused = fetch(url)
    assert isinstance(refused, Away)
    assert "refused" in refused.reason
