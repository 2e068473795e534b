"""Named random streams."""

import pytest

from sim.core.errors import InputError
from sim.workload.rng import RandomStreams


def draws(streams, name):
    return streams.stream(name).integers(0, 2**62, 4).tolist()


def test_stream_of_equal_seed_and_name_begins_anew_each_time():
    """Asking for other streams in between changes nothing."""
    streams = RandomStreams(7)
    first = draws(streams, "arrivals")
    draws(streams, "lengths")
    assert draws(streams, "arrivals") == draws(RandomStreams(7), "arrivals") == first


def test_streams_of_other_seed_name_or_scope_differ():
    """Four streams, four sequences."""
    streams = RandomStreams(7)
    others = [
        draws(streams, "arrivals"),
        draws(streams, "lengths"),
        draws(RandomStreams(8), "arrivals"),
        draws(streams.scoped("chat"), "arrivals"),
    ]
    assert len({tuple(each) for each in others}) == 4


def test_stream_is_the_same_on_every_machine():
    """Known numbers: a change of derivation would change every result of every scenario."""
    assert RandomStreams(0).stream("arrivals").integers(0, 1000, 5).tolist() == [
        562,
        536,
        951,
        153,
        731,
    ]


def test_streams_of_a_negative_seed_are_refused():
    """One line that names the key."""
    with pytest.raises(InputError, match=r"^seed: must be at least 0, not -1$"):
        RandomStreams(-1)
