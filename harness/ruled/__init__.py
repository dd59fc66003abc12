"""Cases of modes that are only rules: a program is noted, its states are made and checked, its fsyncs are
tried.
"""
