"""Litmus programs: a few operations each, and a question that an application's author has."""
