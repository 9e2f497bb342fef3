"""The screenshots of the README: taken from the recording of a real server under load."""
