"""The Linux side: /proc and /sys, read cheaply and without ever blocking the tick."""
