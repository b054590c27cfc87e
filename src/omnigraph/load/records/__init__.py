"""Records as users write them: reads splits of files and parses them into typed Arrow rows and rejects.

`read_split` reads batches, `parse` parses them (by column, by line or by record), `rows` builds and checks rows.
Both engines of `load` and the tests import this package; it knows neither an engine nor the storage of the graph.
"""
