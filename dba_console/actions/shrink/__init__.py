"""Parts of the action `shrink-file`, which deletes a big file: checks, stepwise truncation, pauses between steps."""
