"""Of the disk."""

SECTOR_BYTES = 512
BLOCK_BYTES = 4096
