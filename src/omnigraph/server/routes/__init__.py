"""The routes under `/graphs/{graph}`, one module per group of verbs.

`queries` runs queries and mutations, `branches`, `schemas` and `history` hold the verbs of their names, and `bulk`
loads and exports. Only `app` imports these modules.
"""
