"""The write path: transactions, plans, footprints, publishing."""
