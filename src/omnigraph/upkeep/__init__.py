"""Keeps a graph fast, small and sound: optimize, cleanup (the only code that deletes), verify and repair, tags.

`optimize` rewrites tables, cleanup/ collects commits and files, verify/ reports and mends damage, `tags` name commits.
The API and the doors may import this package; `load` and `history` may not.
"""
