"""Storage: the object-store seam and the only module that knows Lance."""
