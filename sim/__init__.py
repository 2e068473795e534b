"""servetwin's scheduler and simulator. Importing it loads no heavy library."""

from sim.compiled.finder import install

__version__ = "0.1.0"

install()
