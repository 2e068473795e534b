"""The figures of a report, one module a kind of plot; `sim.report.figures.draw` has them all."""
