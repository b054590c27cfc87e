"""The facade for programs with an event loop: `omnigraph.aio`.

`graph` holds the awaited classes, `twins` derives their verbs from the facade, and `threads` runs them. Only
`omnigraph.aio` imports this room.
"""
