"""What is done with a finding: shown once more, made short, grouped by cause, written up for maintainers."""
