"""Verify: reads a whole graph and reports what is damaged, each finding with its place.

`verify` is the walk: `check_log` → `check_tables` → `check_rows`; `findings` collects what they report.
The API and `upkeep` may import this package.
"""
