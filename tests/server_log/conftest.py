"""Writes logs, and reads them whole."""

import pytest

from sim.families import open_server_log


@pytest.fixture
def read_log(tmp_path):
    "Writes lines into one file or, from lists of lines, several; returns the log and its events."

    def read(*files):
        paths = []
        for place, lines in enumerate(files):
            path = tmp_path / f"server.log.{place}"
            text = lines if isinstance(lines, bytes) else ("\n".join(lines) + "\n").encode()
            path.write_bytes(text)
            paths.append(path)
        log = open_server_log(paths)
        return log, list(log.events())

    return read
