"""Runs reading queries in this process: `run_query` prepares the plan and takes lookups, counting on arrays, or DuckDB.

`prepare` caches plans; `lookup`, `count_trees` + `aggregate` and `leaf_rows` + `duckdb_engine` are the three ways;
`id_access` and `code_access` read the leaves. Imported by `mutate`, `api`, and the rooms above them.
"""
