"""A graph behind a server, held like one that is opened here: `omnigraph.connect`."""

from omnigraph.api.remote.graph import RemoteGraph, connect
from omnigraph.api.remote.view import RemoteView

__all__ = ["RemoteGraph", "RemoteView", "connect"]
