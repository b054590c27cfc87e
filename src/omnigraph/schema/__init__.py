"""The schema language: `.pg` text to a `Catalog` of types, properties and constraints; plans of schema changes; values.

`parse` → `declare` → `check_constraints` → `compile` builds the catalog; `plan_change` compares two catalogs;
`row_constraints` and `values` check and convert single rows. Pure. The lowest layer: every package may import it.
"""
