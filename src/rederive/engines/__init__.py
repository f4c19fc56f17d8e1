"""What runs maintenance programs: `base` is the protocol, `resident` the engine in this process."""
