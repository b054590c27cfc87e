"""Derived data of table versions, cached in memory: whole columns, codes of entities, adjacencies, reachability.

Everything is keyed by the state of the tables that it covers, so that it is never stale.
Imported by `query.search`, `query.run` and above; imports `log` and below.
"""
