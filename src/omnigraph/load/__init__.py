"""Loading records: what to read, how, what became of it, and the engine that needs no JVM."""
