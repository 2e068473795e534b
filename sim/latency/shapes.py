"""Model shapes, from which weights, KV cache and FLOPs of a step are computed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a dense decoder-only transformer. Load one with `shape_files.load_model_shape`.

    Attributes:
        name: its name in messages and reports.
        num_layers: transformer layers.
        hidden_size: width of the residual stream.
        num_heads: query heads.
        num_kv_heads: key and value heads.
        head_dim: width of a head.
        intermediate_size: inner width of the MLP.
        vocab_size: rows of the embedding and of the output head.
        tie_word_embeddings: the output head uses the weights of the embedding.
        gated_mlp: the MLP has three matrices instead of two.
        num_other_parameters: norms, biases and learned positions. They are in no matrix product,
            and cost too little time to be measured.
        dtype_bytes: bytes of a weight and of a KV element.
    """

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool
    gated_mlp: bool
    num_other_parameters: int = 0
    dtype_bytes: int = 2

    @property
    def num_layer_matrix_parameters(self) -> int:
        """Parameters of the matrices of all layers, which every token is multiplied with."""
        num_heads = 2 * self.num_heads + 2 * self.num_kv_heads
        attention = self.hidden_size * self.head_dim * num_heads
        mlp = (3 if self.gated_mlp else 2) * self.hidden_size * self.intermediate_size
        return self.num_layers * (attention + mlp)

    @property
    def num_head_parameters(self) -> int:
        """Parameters of the output head, which every sampling row is multiplied with."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All parameters; a tied output head counts once."""
        num_vocab_matrices = 1 if self.tie_word_embeddings else 2
        vocab = num_vocab_matrices * self.num_head_parameters
        return self.num_layer_matrix_parameters + vocab + self.num_other_parameters

    @property
    def weight_bytes(self) -> int:
        """Bytes the weights occupy in memory."""
        return self.num_parameters * self.dtype_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype_bytes
