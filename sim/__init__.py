"""servetwin's scheduler and simulator. Importing it loads no heavy library."""
