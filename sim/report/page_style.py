"""The style sheet of a report's page.

The page is light or dark as the reader's system is, and also fits narrow screens and paper.
"""

STYLE = """\
:root { color-scheme: light dark; --text: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --ground: #ffffff; --panel: #f6f8fa; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e6e6; --soft: #a3adb8;
  --line: #3a424b; --ground: #15191e; --panel: #1f252c; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 72rem; color: var(--text);
  background: var(--ground); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; }
p { max-width: 46rem; }
.facts { color: var(--soft); margin-top: 0; }
.bad { color: var(--bad); }
figure { margin: 1.5rem 0 2.25rem; }
/* Figures are drawn on white, and stay so on a dark page. */
figure img { display: block; width: 100%; height: auto; background: #ffffff;
  border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
figcaption { margin-top: .5rem; color: var(--soft); max-width: 60rem; }
figcaption b { color: var(--text); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { background: var(--panel); font-weight: 600; white-space: normal; vertical-align: bottom; }
tr:last-child td { border-bottom: 0; }
th.text, td.text { text-align: left; }
td.wide { white-space: normal; min-width: 18rem; overflow-wrap: anywhere; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: .75rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.45; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""
