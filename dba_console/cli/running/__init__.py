"""A run followed without a screen: as lines of text or JSON, answered from the keyboard or by what was given."""
