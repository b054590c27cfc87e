"""The `omnigraph` command line: a thin door."""
