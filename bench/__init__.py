"""Measurements of this machine: `python -m bench`. See README.md in this folder."""
