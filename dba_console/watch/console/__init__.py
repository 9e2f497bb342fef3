"""The console itself: events of the session, its own health, temporary settings that are not reverted."""
