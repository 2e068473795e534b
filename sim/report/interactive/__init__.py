"""Figures that the reader of a page can point at, enlarge and switch lines of.

matplotlib has drawn them already; here they are read off its axes, so that both forms show the
same. The page's script (`report.js`) draws them with Plotly.
"""
