"""Loads records from files into the graph as one commit, and exports a commit to files.

`run` is the top of the walk: inputs → options → records/ (read_split → parse → rows) → local/ or spark/ → report.
The API and the doors may import this package; `history` and `upkeep` may not.
"""
