"""The query and mutation language: texts and statements from Python become checked queries, without any I/O.

In the order of the walk: `parse` (with `build_tree` and `syntax_errors`) gives the tree of `syntax`; `check` and the
`check_…` modules give the tree of `checked`, kept by `query_cache`; `bind` and `mutation_call` add values of a call.
`statements` is public; `format`, `lint` and `show` serve people. Imports only `schema`; every room above may import it.
"""
