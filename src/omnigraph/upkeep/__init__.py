"""Upkeep: optimize, tags, leases, verify, repair, and cleanup, which is the only code that deletes."""
