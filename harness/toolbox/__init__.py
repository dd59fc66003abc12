"""The guest with tools: its root image, its boot."""
