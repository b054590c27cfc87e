"""What happened between commits: diff and its pages, change feed, three-way merge.

`merge` plans in this process or hands over to an executor of `history/spark`. Only the facade and the doors import this
room; it knows nothing of `load` and `upkeep`.
"""
