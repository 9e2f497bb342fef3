"""Recordings of sessions: samples, events and runs, written to disk and read back.

    writing   recorder -> sample_block, points -> backlog -> store
    reading   recording -> timeline (sample_block) -> source, or damaged_reader by searching
    keeping   verify, retention, listing
    both      hash_chain, append_file
    runs      run_journal, run_records, run_reader, run_verification

A caller that records something never waits for the disk; unreadable data never hides readable data; missing data is
reported with its reason.
"""
