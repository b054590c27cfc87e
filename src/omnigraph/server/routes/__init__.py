"""The routes under `/graphs/{graph}`, one module per group of verbs.

`queries` runs queries and mutations, `branches` changes branches and schemas, `history` looks back, and `bulk` loads
and exports. Only `app` imports these modules.
"""
