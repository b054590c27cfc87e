"""Typed trees to relational plans; constraints as queries that return violations. Pure."""
