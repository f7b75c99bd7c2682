"""Compiled programs that outlive a process."""

import os
from pathlib import Path


def cache_compilations() -> None:
    """Keep compiled programs between runs, in the user's cache folder, unless JAX was configured otherwise."""
    import jax  # here, so that `sonde --help` need not wait for it

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(base / "sonde" / "compiled"))
    if not os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
