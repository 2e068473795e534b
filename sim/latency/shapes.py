"""Model shapes, from which weights, KV cache and FLOPs of a step are computed."""

from dataclasses import dataclass, replace

from sim.core.errors import InputError
from sim.latency.hardware import BFLOAT16, NumberFormat

_MOE_EP = ("latency", "moe_ep")


@dataclass(frozen=True, slots=True)
class Matrices:
    """Weights that a token is multiplied with.

    Attributes:
        format: how they are stored; bfloat16 stands for the `dtype_bytes` of the shape.
    """

    num_parameters: int
    format: NumberFormat = BFLOAT16

    def num_bytes(self, dtype_bytes: int) -> int:
        """What they take in memory; a weight that is not quantised has `dtype_bytes`."""
        if self.format is BFLOAT16:
            return self.num_parameters * dtype_bytes
        return round(self.num_parameters * self.format.bits / 8)


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of a layer. Shared ones are among the matrices for every token."""

    num_experts: int
    num_active: int
    matrices: Matrices

    def num_read(self, num_tokens: int) -> float:
        """How many different experts that many tokens use, if each token draws its own evenly."""
        unused = 1 - self.num_active / self.num_experts
        return float(self.num_experts * (1 - unused**num_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """What a layer does with earlier tokens, and what it keeps of them.

    Attributes:
        num_kv_heads: heads that several GPUs can share out. With latent attention there is one,
            which all GPUs have.
        kv_elements: kept elements of a token for each of these heads.
        pair_flops: operations for each pair of a query and a key in a prefill, over all heads.
        decode_pair_flops: the same for a decode row, which latent attention computes differently.
        window: the number of most recent keys that a query attends to; older keys need not be kept.
            None: a query attends to all keys.
        is_chunked: the window is a chunk: it begins at the last multiple of its length.
        top_keys: the largest number of keys that a query attends to; an index selects them. None: a
            query attends to all keys.
        index_bytes: kept bytes of the index for each token.
        index_pair_flops: operations of the index for each pair of a query and a key.
        quantised_bytes: kept bytes of a token in a cache with elements of 8 bits, if some of them
            keep more bits there. None: all have 8.
        state_elements: elements of the state that linear attention keeps for each sequence, however
            long.
        state_element_bytes: size of such an element.
        conv_state_bytes: kept beside them: the last tokens that a convolution reads.
        state_heads: heads of the state that several GPUs can share out.
        state_token_flops: operations on the state for each token.
    """

    num_kv_heads: int = 0
    kv_elements: int = 0
    pair_flops: int = 0
    decode_pair_flops: int = 0
    window: int | None = None
    is_chunked: bool = False
    top_keys: int | None = None
    index_bytes: int = 0
    index_pair_flops: int = 0
    quantised_bytes: int | None = None
    state_elements: int = 0
    state_element_bytes: int = 4
    conv_state_bytes: int = 0
    state_heads: int = 0
    state_token_flops: int = 0

    @property
    def state_bytes(self) -> int:
        """Kept for each sequence, however long."""
        return self.state_elements * self.state_element_bytes + self.conv_state_bytes

    @property
    def is_subquadratic(self) -> bool:
        return self.state_bytes > 0 or self.top_keys is not None

    def kv_bytes(self, element_bytes: int, tp: int) -> int:
        """Kept bytes of a token on each of `tp` GPUs. With more GPUs than heads, heads are copied.

        vLLM 0.19: `AttentionSpec` and `MLAAttentionSpec` (`v1/kv_cache_interface.py`) with
        `get_num_kv_heads`; SGLang: `get_cell_size_per_token` (`model_runner_kv_cache_mixin.py`).
        """
        elements = -(-self.num_kv_heads // tp) * self.kv_elements
        if element_bytes == 1 and self.quantised_bytes is not None:
            return self.quantised_bytes + self.index_bytes
        return elements * element_bytes + self.index_bytes


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, or several equal ones.

    Attributes:
        count: how many.
        attention: what it does with earlier tokens.
        matrices: what every token is multiplied with, one entry for each number format.
        experts: what a part of the tokens is multiplied with.
    """

    count: int
    attention: Attention
    matrices: tuple[Matrices, ...]
    experts: Experts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a decoder-only transformer.

    `sim.latency.architectures.model_key.load_model_shape` loads one.

    Attributes:
        name: its name in messages and reports.
        model_type: the word for its architecture in its config.json.
        hidden_size: width of the residual stream.
        intermediate_size: inner width of the MLP.
        vocab_size: rows of the embedding and of the output head.
        tie_word_embeddings: the output head uses the weights of the embedding.
        head: the output head, which every sampling row is multiplied with.
        num_other_parameters: norms, biases and learned positions. They are in no matrix product,
            and cost too little time to be measured.
    """

    name: str
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool
    layers: tuple[Layer, ...]
    head: Matrices
    num_other_parameters: int = 0
    dtype_bytes: int = 2
    kv_element_bytes: int = 2
    model_type: str = ""

    @property
    def num_layers(self) -> int:
        return sum(layer.count for layer in self.layers)

    @property
    def num_subquadratic_layers(self) -> int:
        """Layers with linear attention, or with sparse attention that selects keys by an index."""
        return sum(layer.count for layer in self.layers if layer.attention.is_subquadratic)

    @property
    def num_parameters(self) -> int:
        """All parameters; a tied output head counts once."""
        total = self.num_other_parameters + self.vocab_size * self.hidden_size
        if not self.tie_word_embeddings:
            total += self.head.num_parameters
        for layer in self.layers:
            of_layer = sum(matrices.num_parameters for matrices in layer.matrices)
            if (experts := layer.experts) is not None:
                of_layer += experts.num_experts * experts.matrices.num_parameters
            total += layer.count * of_layer
        return total

    @property
    def weight_bytes(self) -> int:
        """Bytes the weights occupy in memory, on all GPUs together."""
        unquantised = self.num_other_parameters + self.vocab_size * self.hidden_size
        total = unquantised * self.dtype_bytes
        if not self.tie_word_embeddings:
            total += self.head.num_bytes(self.dtype_bytes)
        for layer in self.layers:
            total += layer.count * sum(part.num_bytes(self.dtype_bytes) for part in layer.matrices)
        return total + self.expert_bytes

    @property
    def expert_bytes(self) -> int:
        """Bytes of the routed experts, a part of `weight_bytes`."""
        return sum(
            layer.count
            * layer.experts.num_experts
            * layer.experts.matrices.num_bytes(self.dtype_bytes)
            for layer in self.layers
            if layer.experts is not None
        )

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's keys and values over all layers, on all GPUs together."""
        return self.kv_bytes_on_gpu(1)

    def kv_bytes_on_gpu(self, tp: int) -> int:
        """Bytes of one token's keys and values over all layers on each of `tp` GPUs."""
        element_bytes = self.kv_element_bytes
        return sum(
            layer.count * layer.attention.kv_bytes(element_bytes, tp) for layer in self.layers
        )

    @property
    def state_bytes(self) -> int:
        """Bytes that linear attention keeps for each sequence, on all GPUs together."""
        return sum(layer.count * layer.attention.state_bytes for layer in self.layers)

    def with_state_elements(self, element_bytes: int) -> "ModelShape":
        """The same model, whose states have elements of another size."""
        layers = tuple(
            replace(layer, attention=replace(layer.attention, state_element_bytes=element_bytes))
            for layer in self.layers
        )
        return replace(self, layers=layers)

    def check_tp(self, tp: int) -> None:
        """Raise InputError if `tp` GPUs cannot share the model's heads."""
        if self.num_heads % tp:
            reason = f"{tp} does not divide the {self.num_heads} attention heads of {self.name}"
            raise InputError(reason, key=("latency", "tp"))
        fewer, more = sorted((self.num_kv_heads, tp))
        if more % fewer:
            reason = f"{tp} and the {self.num_kv_heads} KV heads of {self.name} do not divide"
            raise InputError(f"{reason} each other", key=("latency", "tp"))
        for layer in self.layers:
            if layer.attention.state_heads % tp:
                heads = f"{layer.attention.state_heads} key heads of linear attention"
                reason = f"{tp} does not divide the {heads} of {self.name}"
                raise InputError(reason, key=("latency", "tp"))

    def check_experts(self, moe_ep: int, *, may_copy: bool = False) -> None:
        """Raise InputError if the experts cannot be spread evenly over `moe_ep` groups of GPUs.

        With copies of some experts, as servers with DeepEP have them, any number of groups up to
        that of the experts will do (SGLang's `--ep-num-redundant-experts`).

        SGLang refuses uneven groups, too (`layers/moe/fused_moe_triton/layer.py`). vLLM 0.19 gives
        the first groups one expert more, but there are no times of that; it refuses a model without
        experts.
        """
        counts = {layer.experts.num_experts for layer in self.layers if layer.experts is not None}
        if moe_ep > 1 and not counts:
            raise InputError(f"is {moe_ep}, but {self.name} has no experts", key=_MOE_EP)
        for num_experts in counts:
            if moe_ep > num_experts if may_copy else num_experts % moe_ep:
                what = "is more than" if may_copy else "does not divide"
                reason = f"{moe_ep} {what} the {num_experts} experts of {self.name}"
                raise InputError(reason, key=_MOE_EP)
