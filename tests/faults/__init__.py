"""Fail at the n-th effect: every operation, every kind of failure, every place it can strike (S42–S60).

`faulty_process` builds the graph that every case starts from and opens it with faults, `operations` lists what is done
to it, `atomicity` checks what must hold afterwards, `workers` holds the functions that die in child processes.
"""
