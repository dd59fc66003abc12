"""Campaigns: batches of generated workloads, without end, their findings grouped by cause as they come."""
