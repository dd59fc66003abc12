"""The guest with tools: its root image and how it boots."""
