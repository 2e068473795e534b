"""Builds a model with random weights, or with those of a checkpoint."""

from zlib import crc32

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from realrun.device.memory import GIB, free_bytes
from realrun.model.config import ModelSource, one_line, quiet_transformers
from sim.core.errors import InputError
from sim.latency.shapes import ModelShape

# The attention of the plain model, which `realrun check` compares with. Steps do not use it.
PLAIN_ATTENTION = "sdpa"

# Small compared with what a layer adds, so that the next token depends on the layers. Otherwise a
# head that is tied to the embedding would just repeat the input token.
_EMBEDDING_STD = 0.02

# Large enough for few kernel launches on a GPU, and small enough for the caches of a CPU.
_CHUNK_ELEMENTS = 1 << 20


def check_room(where: str, shape: ModelShape, device: torch.device) -> None:
    """Raises InputError if a model's weights do not fit into the device's free memory."""
    num_free_bytes = free_bytes(device)
    if shape.weight_bytes > num_free_bytes:
        raise InputError(
            f"{where}: its weights take {shape.weight_bytes / GIB:.2f} GiB,"
            f" but {device} has {num_free_bytes / GIB:.2f} GiB free"
        )


def build_random(
    source: ModelSource, device: torch.device, dtype: torch.dtype, seed: int
) -> PreTrainedModel:
    """A model with random matrices. Norms and biases have the initial values of transformers.

    Every element is a hash of the seed, the name of its matrix and its index. The hash uses
    integers only, so the weights are the same on every device and machine.

    Raises:
        InputError: transformers cannot build the model, or it does not fit on the device.
    """
    try:
        with torch.device(device), quiet_transformers():
            model = AutoModelForCausalLM.from_config(
                source.config, dtype=dtype, attn_implementation=PLAIN_ATTENTION
            )
    except torch.OutOfMemoryError as error:
        raise InputError(f"{source.where}: {one_line(error)}") from None
    except Exception as error:  # a configuration may be anything
        raise InputError(f"{source.where}: the model cannot be built: {one_line(error)}") from None
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    for name, module in model.named_modules():
        std = _matrix_std(module)
        if std is not None and (module is not head or head.weight is not embedding.weight):
            fill_random(module.weight.data, key=crc32(name.encode(), seed), std=std)
    return model


def load_checkpoint(
    source: ModelSource, device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """A model with the weights in its folder, in any file format that transformers reads.

    Raises:
        InputError: weights are missing, unreadable, or of other sizes than the configuration
            says; or they do not fit on the device.
    """
    try:
        with quiet_transformers():
            model, report = AutoModelForCausalLM.from_pretrained(
                source.checkpoint,
                config=source.config,
                dtype=dtype,
                attn_implementation=PLAIN_ATTENTION,
                local_files_only=True,
                # So that they are reported like missing weights, and refused below.
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:  # libraries read what somebody else may have made
        raise InputError(f"{source.where}: weights cannot be read: {one_line(error)}") from None
    misfits = sorted(report["missing_keys"]) + sorted(key for key, *_ in report["mismatched_keys"])
    if misfits:
        raise InputError(
            f"{source.where}: {misfits[0]}: missing from the weights, or of another size than"
            f" config.json says ({len(misfits)} of the weights)"
        )
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        raise InputError(f"{source.where}: {one_line(error)}") from None


def fill_random(matrix: Tensor, *, key: int, std: float) -> None:
    """Fill a contiguous matrix with hashes of the indices: uniform random numbers around 0.

    Args:
        matrix: of any float dtype, on any device.
        key: 32 bits; a different key gives different numbers.
        std: standard deviation of the numbers.
    """
    flat = matrix.view(-1)
    scale = std * 3**0.5 / 2**23
    indices = torch.arange(_CHUNK_ELEMENTS, dtype=torch.int32, device=matrix.device)
    for start in range(0, len(flat), _CHUNK_ELEMENTS):
        part = flat[start : start + _CHUNK_ELEMENTS]
        # Use 24 bits of the hash, which float32 holds exactly on every device.
        numbers = _hash(indices[: len(part)] + start, key).bitwise_right_shift_(8)
        part.copy_(numbers.to(torch.float32).mul_(scale))


def _hash(numbers: Tensor, key: int) -> Tensor:
    """Mix 32-bit integers in place, with logical shifts and products that wrap around."""
    numbers.mul_(_signed(0x9E3779B1)).add_(_signed(key))
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        low_bits = (1 << (32 - shift)) - 1
        numbers.bitwise_xor_((numbers >> shift).bitwise_and_(low_bits)).mul_(_signed(factor))
    return numbers


def _signed(number: int) -> int:
    """The int32 that has the same bits as an unsigned 32-bit number."""
    return number - (1 << 32) if number >> 31 else number


def _matrix_std(module: nn.Module) -> float | None:
    """The standard deviation of a module's random weight; None if it is not a matrix.

    With 1 / sqrt(input width), the outputs of a layer are about as large as its inputs.
    """
    if isinstance(module, nn.Embedding):
        return _EMBEDDING_STD
    if isinstance(module, nn.Linear):
        return float(module.in_features**-0.5)
    if isinstance(module, Conv1D):
        return float(module.weight.shape[0] ** -0.5)
    return None
