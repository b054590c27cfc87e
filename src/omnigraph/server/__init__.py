"""The HTTP door: `omnigraph serve`. Every verb is a call of the facade.

`run` starts the process, `app` builds the application, `middleware` sees every request first, `routes/` hold the verbs,
and `workers` runs them in threads. Only the command line imports this room.
"""
