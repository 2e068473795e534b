"""Where a watch says what it finds: terminal, folder, Prometheus. Memory does not grow."""

import csv
from collections import deque
from collections.abc import Callable
from pathlib import Path

from calibrate.watch.exporter import Exporter
from calibrate.watch.rows import CSV_HEADER, csv_row, prometheus_text, text_lines
from calibrate.watch.watcher import Watched
from sim.core.errors import InputError
from sim.core.files import check_target, make_folder, write_text

WINDOWS, PAGE = "windows.csv", "index.html"
# A day of windows of 20 s is on the page, and what happened in it.
_KEPT_ROWS, _KEPT_NOTES = 4_320, 200


class Outputs:
    """All of them; those that are not wanted are None."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        out: Path | None,
        exporter: Exporter | None,
        refresh_s: int,
    ) -> None:
        """Write lines with `say`; a browser loads the page again every `refresh_s` seconds."""
        self._say, self._out, self._exporter = say, out, exporter
        self._refresh_s = refresh_s
        self._rows: deque[Watched] = deque(maxlen=_KEPT_ROWS)
        self._notes: deque[tuple[int, str]] = deque(maxlen=_KEPT_NOTES)
        self._num_drifts = 0
        self._drifted = False
        self._is_up = True
        if out is not None:
            make_folder(out)
            check_target(out / WINDOWS)
            write_text(out / WINDOWS, ",".join(CSV_HEADER) + "\n")
        self._export()

    def take(self, watched: Watched, *, draws_page: bool) -> None:
        """A window ended."""
        for line in text_lines(watched):
            self._say(line)
        self._num_drifts += bool(watched.drifts) and not self._drifted
        self._drifted = bool(watched.drifts)
        self._rows.append(watched)
        self._notes.extend((watched.window.last.at_us, note) for note in watched.notes)
        if self._out is not None:
            self._append(self._out / WINDOWS, csv_row(watched))
        if draws_page:
            self.draw()
        self._export()

    def note_up(self, *, is_up: bool) -> None:
        """The server could be asked, or not."""
        self._is_up = is_up
        self._export()

    def draw(self) -> None:
        """Draw the page, if somebody wants one."""
        if not self._rows or (self._out is None and self._exporter is None):
            return
        from calibrate.watch.page import page  # noqa: PLC0415

        text = page(self._rows, self._notes, self._refresh_s)
        if self._out is not None:
            write_text(self._out / PAGE, text)
        if self._exporter is not None:
            self._exporter.page = text

    def _export(self) -> None:
        if self._exporter is not None:
            last = self._rows[-1] if self._rows else None
            self._exporter.metrics = prometheus_text(last, self._num_drifts, is_up=self._is_up)

    @staticmethod
    def _append(path: Path, row: list[str]) -> None:
        try:
            with path.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(row)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
