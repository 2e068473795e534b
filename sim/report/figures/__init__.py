"""The figures of a report: each kind of plot makes marks, and `render` draws them."""
