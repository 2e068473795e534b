"""A small tokenizer for clients that need one, trained on this project's documents."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

_NUM_TOKENS = 4096
_CHAT = "{% for m in messages %}<{{ m['role'] }}>\n{{ m['content'] }}\n{% endfor %}<assistant>\n"


def make_tokenizer(texts: Path, folder: Path) -> None:
    """Write a tokenizer as Hugging Face's libraries read it.

    Args:
        texts: a folder with Markdown files to learn from.
        folder: where to write it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_NUM_TOKENS,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(path) for path in sorted(texts.rglob("*.md"))], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "model_max_length": 131072,
        "chat_template": _CHAT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    # Some clients ask which model it belongs to.
    model = {"model_type": "llama", "vocab_size": _NUM_TOKENS}
    (folder / "config.json").write_text(json.dumps(model), encoding="utf-8")
