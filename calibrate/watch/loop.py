"""Runs a watch: of a server, until somebody ends it, or of a dump, until its end."""

from collections.abc import Callable, Iterable

from calibrate.watch.outputs import Outputs
from calibrate.watch.source import Away, Late
from calibrate.watch.watcher import Watcher
from sim.server_metrics.scrape import Scrape


def watch_all(
    scrapes: Iterable[Scrape | Away | Late],
    watcher: Watcher,
    outputs: Outputs,
    *,
    say: Callable[[str], None],
    log_changes: Callable[[], Iterable[str]] = tuple,
    is_live: bool,
) -> bool:
    """Watch until there are no more scrapes; returns whether they made a window.

    `log_changes` says what is new in the server's own log since it was called last. The page is
    drawn with each window of a live server, and at the end of a dump.

    Raises:
        InputError: the server is not the scenario's, or a file cannot be written.
    """
    is_away = has_window = False
    for scrape in scrapes:
        if isinstance(scrape, Away):
            if not is_away:
                say(f"the server is away: {scrape.reason}; still trying")
                outputs.note_up(is_up=False)
            is_away = True
            continue
        if isinstance(scrape, Late):
            watcher.note_late(scrape)
            continue
        if is_away:
            say("the server is back")
            outputs.note_up(is_up=True)
            is_away = False
        for words in log_changes():
            watcher.note_change(words)
        if (watched := watcher.take(scrape)) is not None:
            has_window = True
            outputs.take(watched, draws_page=is_live)
    outputs.draw()
    return has_window
