"""Relational constraints of a schema (uniqueness, endpoints, cardinality, ids) as queries that return violating rows.

`compile.py` turns a catalog and a change into relations (`relations.py`); `evaluate.py` runs them in-process, `sql.py`
and `screen_sql.py` print them for DuckDB and Spark. Imports only `schema`; any layer above may import this package.
"""
