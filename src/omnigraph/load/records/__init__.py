"""Records as users write them: text and tables in, typed Arrow rows and rejects out. No engine, no storage."""
