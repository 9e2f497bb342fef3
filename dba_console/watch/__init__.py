"""What is read every second, and what it means: samples, probes, frames, findings, panels."""
