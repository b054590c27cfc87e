"""Searches as columns: text filters and bm25 (`text`), vector distances (`vectors`), per leaf (`search_columns`).

Scores are exact for every row; no index of the store is involved. Fused ranks are computed by the statement.
Imported by `query.run` only.
"""
