"""The load engine that runs in this process, for inputs that fit into memory.

`parse` reads and parses the whole input, `reject` checks it together with the graph, `operation` publishes one commit.
Only `load.run` may import this package.
"""
