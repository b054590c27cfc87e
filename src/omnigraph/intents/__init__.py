"""Intents: bulk operations that outlive their process, because recovery can publish or give up what they staged.

Holds the objects of an intent, the scope that a running operation holds, the codec of stored plans, and recovery.
`load`, `history`, `upkeep` and `api` may import it; it imports `commit` and what `commit` may import.
"""
