"""A run as lines: what the screen and the plain terminal show of a `RunView`. Pure; nothing here asks or decides."""
