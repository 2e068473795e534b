"""The fingerprint of a run: device, libraries, model. Logs with equal ones can be compared."""

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from realrun.model.paged_model import PagedModel


def fingerprint(model: PagedModel, attention: str) -> dict[str, object]:
    """All that affects the duration of a given step, as JSON values."""
    shape = model.shape
    return {
        **_device(model.device),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "flashinfer": _version("flashinfer-python") if attention.startswith("flashinfer") else None,
        "attention": attention,
        "model": shape.name,
        "num_parameters": shape.num_parameters,
        "num_layers": shape.num_layers,
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def git_revision() -> str | None:
    """The git commit of this code, with `+` if files have changed; None outside a repository."""
    folder = Path(__file__).parent
    revision = _git(folder, "rev-parse", "HEAD")
    if revision is None:
        return None
    return revision + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


def _device(device: torch.device) -> dict[str, object]:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return {
            "device": properties.name,
            "memory_bytes": properties.total_memory,
            "driver": _nvidia_driver(),
            "cuda": torch.version.cuda,
            "num_threads": None,
        }
    return {
        "device": _processor(),
        "memory_bytes": None,
        "driver": None,
        "cuda": None,
        "num_threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _nvidia_driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    return next((word for word in text.split() if word[:1].isdigit() and "." in word), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            [git, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
