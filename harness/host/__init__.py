"""What the host offers: cache, files, resources, progress."""
