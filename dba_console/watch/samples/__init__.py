"""What was read: raw counters with their times, immutable, never edited, and their codec."""
