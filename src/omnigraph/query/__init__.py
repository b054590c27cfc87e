"""Queries: `language` checks the text, `plan` plans it, `search` and `run` execute it in this process.

`limits` bounds what one query may use.
Imported by `mutate`, `api`, and the rooms above them.
"""
