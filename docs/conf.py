"""The site of the documents: `make docs`. Pages are the Markdown files of the checkout where they are."""

from __future__ import annotations

from harness import __version__

project = "Powercut"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.graphviz"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "vms/filesystems/CONTRACTS.md",
    "workloads/README.md",
    "workloads/fstests/README.md",
    "reports/findings/README.md",
    "reports/findings/*/README.md",
    "reports/examples/README.md",
    "reports/examples/*/README.md",
]
# Folders without pages: Sphinx walks all others, and a checkout in use has millions of files in these.
exclude_patterns = ["docs/README.md", ".?*", "target", "dist", "harness", "kernels", "reports/[!ef]*"]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
suppress_warnings = [
    "misc.highlighting_failure",  # a shell block with "..." is no shell
    "myst.header",  # pages that a terminal shows begin where they like
]
highlight_language = "text"
graphviz_output_format = "svg"
graphviz_dot_args = [
    "-Gbgcolor=transparent",
    "-Nfontname=sans-serif",
    "-Nfontsize=11",
    "-Efontname=sans-serif",
    "-Efontsize=10",
]

html_theme = "furo"
html_title = "Powercut"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
