"""Settings of the documentation site (`make docs`): Sphinx with MyST Markdown, executed notebooks and the theme Furo."""

import os
import sys
import typing
from pathlib import Path

import sonde

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(ROOT)]
typing.GENERATING_DOCUMENTATION = "sonde"  # jaxtyping then writes types as they stand in the source
# notebooks run in processes that inherit these: on the CPU, with compiled programs kept between builds
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
# kernels warn that they talk over local ports; the notebooks hold nothing secret
os.environ["IPYTHONDIR"] = str(ROOT / ".cache" / "ipython")
profile = ROOT / ".cache" / "ipython" / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40  # errors\n")

project = "Sonde"
author = "The Sonde authors"
copyright = "The Sonde authors, Apache-2.0"
version = release = sonde.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "api_pages",
    "mathml",
    "repository_links",
    "site_navigation",
]
exclude_patterns = ["_*", "**/.*"]
nitpicky = True
# types of other packages, shapes of arrays, and classes that are not public have no page
nitpick_ignore_regex = [("py:class", r"(?!sonde\.).*"), ("py:class", r"sonde\.(.*\.)?_.*")]
smartquotes = False  # as on GitHub
highlight_language = "none"  # of blocks that name no language

# --- where the reader finds what: captions of the side bar, and pages below other pages
repository = "https://github.com/sonde-rl/sonde"
navigation = {
    "Start": ["getting-started", "choosing", "gallery"],
    "Notebooks": [
        *(f"notebooks/{name}" for name in ("pendulum", "uncertainty", "choosing-a-method", "choosing-a-model")),
        *(
            "notebooks/your-own-system",
            "notebooks/from-a-log",
            "notebooks/exploring-safely",
            "notebooks/world-of-objects",
            "notebooks/new-method",
            "notebooks/*",
        ),
    ],
    "Concepts": ["concepts/index", "concepts/loop", "concepts/uncertainty", "concepts/optimism", "concepts/*"],
    "How-to guides": [
        "how-to/index",
        "how-to/*",
        "own-system",
        "from-a-log",
        "gymnasium",
        "fmu",
        "constraints",
        "data",
        "known-physics",
        "relational",
        "drift",
        "hidden-state",
        "linear",
        "runs",
        "report",
        "trackers",
        "callbacks-and-metrics",
        "sweeps",
        "deployment",
        "extending",
        "troubleshooting",
    ],
    "Reference": [
        "command-line",
        "python-api",
        "methods",
        "gaussian-process",
        "ensemble",
        "worlds",
        "guarantees",
        "metrics",
    ],
    "Results": ["results/index", "speed", "robustness", "comparison"],
    "Project": [
        "project/citation",
        "project/changelog",
        "project/contributing",
        "threat-model",
        f"Lab notebook <{repository}/blob/main/experiments/NOTES.md>",
    ],
}
pages_below = {"python-api": ["api/*"], "results/index": ["results/*"]}

# --- Markdown and notebooks
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / ".cache" / "notebooks")
nb_execution_timeout = 180
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"

# --- API reference
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
maximum_signature_line_length = 88
napoleon_use_rtype = False
toc_object_entries = False
add_module_names = False

# --- appearance
html_theme = "furo"
html_title = f"Sonde {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_theme_options = {
    "source_repository": f"{repository}/",
    "source_branch": "main",
    "source_directory": "docs/",
    "light_css_variables": {"color-brand-primary": "#0b6e8a", "color-brand-content": "#0b6e8a"},
    "dark_css_variables": {"color-brand-primary": "#5cc3dd", "color-brand-content": "#5cc3dd"},
}
html_show_sphinx = False
