"""The schema language: grammar, parser, model, checks, formatter."""
