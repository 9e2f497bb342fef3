"""The subject cluster: nodes and poolers of the configured cluster, on the screen and in findings."""
