"""The graph as a description, and how it is started and ended."""
