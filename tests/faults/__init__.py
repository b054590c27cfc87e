"""Fail at the n-th effect: every operation, every kind of failure, every place it can strike (S42–S60).

`ground` holds the graph that every case starts from, `operations` what is done to it, `judge` what must hold
afterwards whatever happened, `workers` what dies in child processes.
"""
