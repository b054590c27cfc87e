"""Embedding providers, which turn the text of `nearest($v.p, "text")` into a vector (`providers`).

`words` defines how a text is cut into terms, for the hash provider and for text search.
A leaf room: imports only errors; imported by `query.search`, `query.run` and above.
"""
