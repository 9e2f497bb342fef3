"""Reads the world. A probe only reads: nothing in this room changes the server or the host."""
