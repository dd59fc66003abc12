"""Upstream bugs: of those mended upstream, which does a plain run find on the last kernel that has them?"""
