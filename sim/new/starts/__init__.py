"""What a new file begins as: one small working class of each kind (docs/how-to/plug-in.md)."""
