"""Cleanup: survey → mark → condemn (trash list) → delete → report. The only code of the project that deletes.

`cleanup` is the walk; `retention` decides which commits go, `survey` reads, `mark` finds files in use, `trash` lists.
The API and `upkeep` may import this package.
"""
