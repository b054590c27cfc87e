"""What happened between commits: lineage, diff, three-way merge, change feed."""
