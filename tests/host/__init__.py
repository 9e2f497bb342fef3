"""The Linux side against the real kernel, its own tools and real servers."""
