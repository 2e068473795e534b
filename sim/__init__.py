"""servetwin's scheduler and simulator. Importing it loads no heavy library."""

__version__ = "0.1.0"
