"""The screen: the only room that imports textual."""
