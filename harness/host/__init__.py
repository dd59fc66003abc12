"""Services of the host: cache, files, resources, progress."""
