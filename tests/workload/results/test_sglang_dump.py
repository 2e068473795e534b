"""SGLang's dumps are pickles: read, but never run."""

import os
import pickle

import pytest

from sim.commands.import_results import sniff
from sim.core.errors import InputError
from sim.sglang.results.dump import PickledObject, read_pickle_safely
from tests.support.result_files import ServedRequest, sglang_dump

SECOND = 1_000_000_000


def served(rid, start_s=0):
    return ServedRequest(
        rid, start_s * SECOND, start_s * SECOND, (start_s + 1) * SECOND, (start_s + 2) * SECOND,
        prompt=(5, 6, 7), answer=(8, 9), max_new_tokens=4,
    )  # fmt: skip


class Armed:
    """An object that runs a command if an ordinary unpickler loads it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_pickle_of_somebody_who_wants_to_run_something_runs_nothing(tmp_path, written):
    """The call in the pickle becomes an object without effect."""
    trap = tmp_path / "sprung"
    path = written(pickle.dumps({"requests": [Armed(trap)], "more": [print, os.path.join]}))
    read = read_pickle_safely(path)
    assert not trap.exists()
    [thing] = read["requests"]
    assert isinstance(thing, PickledObject)
    assert thing.pickled_name.endswith(".system")
    assert thing.arguments == [f"touch {trap}"]
    assert all(issubclass(each, PickledObject) for each in read["more"])


def test_pickle_with_armed_protocol_0_runs_nothing(tmp_path, written):
    """Calls in the oldest pickle protocol have no effect, too."""
    trap = tmp_path / "sprung"
    path = written(b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.")
    assert isinstance(read_pickle_safely(path), PickledObject)
    assert not trap.exists()


def test_dump_tells_requests_with_their_tokens(written, imported):
    run, [request] = imported(written(sglang_dump([served("a", 3)]), "x.pkl"))
    assert request.prompt_ids.ids.tolist() == [5, 6, 7]
    assert request.answer.tolist() == [8, 9]
    assert (request.arrival_ns, request.finish_ns) == (0, 2 * SECOND)
    assert run.facts.scheduler == {"page_size": 16}


def test_folder_of_dumps_is_one_run(tmp_path, written, imported):
    """A server writes a file for each batch of requests."""
    (tmp_path / "dumps").mkdir()
    written(sglang_dump([served("a", 3)]), "dumps/1.pkl")
    written(sglang_dump([served("b", 4), served("HEALTH_CHECK_9")]), "dumps/2.pkl")
    assert sniff(tmp_path / "dumps") == "sglang-dump"
    run, requests = imported(tmp_path / "dumps")
    assert [(one.rid, one.arrival_ns) for one in requests] == [("a", 0), ("b", SECOND)]
    assert run.left_out == ("HEALTH_CHECK_9: a health check, or not a generation request",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80\x04", "is not a pickle, or is damaged"),
        (b"\x80\x04]\x94.", "requests: missing; this is no dump of SGLang's requests"),
        (
            pickle.dumps({"requests": [1]}),
            "requests[0]: must be (request, output, created, finished)",
        ),
        (
            pickle.dumps({"requests": [({}, {}, 1, 2)]}),
            "requests[0]: rid: null is not the id of one request",
        ),
        (pickle.dumps({"requests": []}), "holds no results"),
        (sglang_dump([served("a")])[:-30], "is not a pickle, or is damaged"),
    ],
)
def test_bad_dump_is_refused(written, refusal, content, reason):
    assert reason in refusal(written(content))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        # Tuples of tuples as a key, whose hash would visit a billion of them.
        (b"})\x94" + b"".join(b"0h%ch%c\x86\x94" % (i, i) for i in range(40)) + b"K\x01s", "keys"),
        # Lists that contain each other a billion times over.
        (b"]\x94" + b"".join(b"0]\x94(h%ch%ce" % (i, i) for i in range(60)), "far more objects"),
        (b"]\x94(h\x00e", "contains itself"),
    ],
    ids=["hashed tuples", "shared lists", "circle"],
)
def test_pickle_that_describes_more_than_it_holds_is_refused(written, body, reason):
    """At once, and in little memory."""
    with pytest.raises(InputError, match=reason):
        read_pickle_safely(written(b"\x80\x04" + body + b"."))
