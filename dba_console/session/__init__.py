"""What is remembered: the recording, its events, and the cursor that reads them back."""
