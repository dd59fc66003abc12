"""The base of known bugs: what each one shows, and which of them a finding is."""
