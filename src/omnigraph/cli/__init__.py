"""The command line, `omnigraph`: one module per group of verbs, each a few lines over `api`.

`main` is the entry point, `options` and `output` hold what verbs share, `errors` turns errors into exit codes.
Nothing imports this room.
"""
