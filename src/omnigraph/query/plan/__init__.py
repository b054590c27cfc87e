"""Plans reading queries: a checked query becomes a relational plan, rewrite rules improve it, SQL prints it. Pure.

`build_plan` → `rules` → `sql`; `leaf_columns` holds the names that the statement and the engines agree on.
Imported by the rooms that run plans (`query.run`, `query.search`, `query.spark`) and by `constraints` and above.
"""
