"""The Linux side on files written by hand: other kernels, other containers, hostile names."""
