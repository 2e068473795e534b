"""The hot modules as C: which are used, and how they are made (docs/how-to/compiled.md)."""
