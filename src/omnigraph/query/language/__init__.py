"""The query and mutation language: grammar, parser, typed tree, checker."""
