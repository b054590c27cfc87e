"""A graph behind a server, held like one that is opened here: `omnigraph.connect`."""

from omnigraph.client.graph import RemoteGraph, connect
from omnigraph.client.views import RemoteView

__all__ = ["RemoteGraph", "RemoteView", "connect"]
