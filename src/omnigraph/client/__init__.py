"""A graph behind a server, held like one that is opened here: `omnigraph.connect`."""

from omnigraph.client.graph import RemoteGraph, RemoteView, connect

__all__ = ["RemoteGraph", "RemoteView", "connect"]
