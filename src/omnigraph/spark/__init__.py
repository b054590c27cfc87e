"""What every operation on Spark uses: session, tasks, data source, shuffle by id, constraint runner.

The pipelines live with their capability: `load/spark`, `history/spark`, `upkeep`, which may import this room.
Nothing here imports PySpark before it is used, but for `data_source`.
"""
