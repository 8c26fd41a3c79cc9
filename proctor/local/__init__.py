"""Local mode: a cluster in memory whose kubelet runs pods as bubblewrap containers, and what stands around it."""
