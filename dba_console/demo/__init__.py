"""The demo: practice servers under a real load, and incidents to rehearse on them."""
