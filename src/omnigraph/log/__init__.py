"""Commit records, branches, lineage, snapshots: the only package that decides what is visible."""
