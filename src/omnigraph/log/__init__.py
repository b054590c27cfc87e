"""The commit log: what a commit record holds and how records are read; this room decides what is visible.

Holds commit records and their codec, overlays, streams, branch registry, lineage, snapshots and table views.
Every room from `adjacency` upwards may import it; it imports `storage`, `schema` and nothing above them.
"""
