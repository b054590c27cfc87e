"""The routes, one module per capability."""
