"""The panels: pure functions that lay out a frame as lines and tables, shared by screen, `show` and JSON."""
