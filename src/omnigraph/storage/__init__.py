"""Storage: where a graph's bytes are. Knows nothing of commits, types' rows or queries.

Holds the object-store seam (`store`) with its local and remote implementations, addresses, probes, metering, the
files that users name as input and output, and `Backend`, which hands all effects down; `lance/` holds the tables.
Every room from `log` upwards may import it; it imports only `schema`, `clock`, `config` and `errors`.
"""
