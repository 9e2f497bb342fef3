"""Every figure the documents quote, measured side by side with the peer in one run. Not tests: nothing fails here."""
