"""The Spark plane: whole graphs in and out. Nothing here imports PySpark before it is used."""
