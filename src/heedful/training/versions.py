"""What a run ran on."""

import platform
from importlib.metadata import version

import torch


def versions() -> dict[str, str]:
    """Versions that results can depend on."""
    return {
        "heedful": version("heedful"),
        "torch": torch.__version__,
        "tokenizers": version("tokenizers"),
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
