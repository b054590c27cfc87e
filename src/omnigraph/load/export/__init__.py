"""Exports the rows of one commit as NDJSON, Parquet or CSV that `load` can read back.

`export` chooses target and engine and sorts rows by id, `formats` writes them, `on_spark` does it in parallel.
The API and the doors may import this package.
"""
