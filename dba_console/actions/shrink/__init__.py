"""Removal of a big file: checks of the file, stepwise truncation from its end, pace of the cuts."""
