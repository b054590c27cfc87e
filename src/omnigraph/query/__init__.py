"""The languages: text to typed trees. Pure: no I/O, no engine."""
