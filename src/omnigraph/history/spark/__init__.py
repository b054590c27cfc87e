"""Diff and merge of many rows on Spark: `merge` plans, `decide_bucket` runs in workers, `check_merged` evaluates
constraints. Only `history/merge.py` and the facade import this room.
"""
