"""Parts of the action `shrink-file`, which removes a big file: checks, stepwise truncation, pace of the cuts."""
