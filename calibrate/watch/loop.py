"""Runs a watch: of a server, until somebody ends it, or of a dump, until its end."""

from collections.abc import Callable, Iterable

from calibrate.watch.outputs import Outputs
from calibrate.watch.source import Away
from calibrate.watch.watcher import Watched, Watcher
from sim.server_metrics.scrape import Scrape


def watch_all(
    scrapes: Iterable[Scrape | Away],
    watcher: Watcher,
    outputs: Outputs,
    *,
    say: Callable[[str], None],
    look: Callable[[], Iterable[str]] = tuple,
    is_live: bool,
) -> None:
    """Watch until there are no more scrapes.

    `look` says what else is different about the server since it was called last. The page is drawn
    with each window of a live server, and at the end of a dump.

    Raises:
        InputError: the server is not the scenario's, or a file cannot be written.
    """
    is_away = False
    for scrape in scrapes:
        if isinstance(scrape, Away):
            if not is_away:
                say(f"the server is away: {scrape.reason}; still trying")
                outputs.note_up(is_up=False)
            is_away = True
            continue
        if is_away:
            say("the server is back")
            outputs.note_up(is_up=True)
            is_away = False
        for words in look():
            watcher.note_change(words)
        watched: Watched | None = watcher.take(scrape)
        if watched is not None:
            outputs.take(watched, draws_page=is_live)
    outputs.draw()
