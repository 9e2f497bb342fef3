"""Derives panels from samples: rates, ages, trends. Pure functions; derived values are not stored as facts."""
