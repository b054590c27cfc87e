"""Loads on Spark, one module per step: split, parse, stage, check, reject, index, rebase, publish; `load` runs them.

Only `load/run.py`, and the facade for frames and recovery, may import this room.
"""
