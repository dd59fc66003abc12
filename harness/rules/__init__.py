"""File systems that are only rules: what a program's calls may leave of its files after a power cut. Pure.

`calls` reads what the guest noted; `micro` cuts calls into what persists as a whole, and says which sync
covers what; `states` lists the states that the rules of a mode leave possible; `trees` makes the files of a
state; `vulnerabilities` says which order a program relies on, and which fsync would give it.
"""
