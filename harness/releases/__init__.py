"""The same cases on one kernel after another: the matrix of releases, and the history of a finding."""
