"""A graph behind a server, with the interface of one that is opened here: `omnigraph.connect`.

`over_http` gives methods the parameters of the facade, `transport` sends requests, and `decode`, `wire` and `errors`
read the answers. The server imports what both sides of the wire share.
"""

from omnigraph.api.remote.graph import RemoteGraph, connect
from omnigraph.api.remote.view import RemoteView

__all__ = ["RemoteGraph", "RemoteView", "connect"]
