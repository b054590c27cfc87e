"""Runs plans on one machine: DuckDB over Arrow, with scans, expansions and searches of its own."""
