"""The figures of a report, one module for each kind of plot; `draw` lists the kinds."""
