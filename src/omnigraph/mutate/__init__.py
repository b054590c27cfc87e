"""Mutations and schema changes: statements become row changes, are checked, and become a publish plan.

`mutation` and `schema_change` are operations for the writer; `change_set`, `pending_table`, `check_changes`, `claims`
are their steps; `changed_rows` compares two snapshots. `api`, `load`, `history` and `upkeep` may import this package.
"""
