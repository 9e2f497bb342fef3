"""Recordings of incidents for those who cannot have the real thing, and the script that makes them anew."""
