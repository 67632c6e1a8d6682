#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model directory of about 30 KB that vLLM serves with `--load-format dummy`, offline.

    make_model.py DIRECTORY [--layers N]

Qwen3 in its smallest useful shape, and a byte-level tokenizer without merges: one token per byte.
"""
import argparse
import json
import pathlib

VOCABULARY = 1000
POSITIONS = 4096
# Every id is a token, so that whatever a server without arithmetic samples can be written as text.
SPECIAL = ("<|end|>", "<|user|>", "<|assistant|>")


def byte_letters():
    """The 256 printable letters that byte-level tokenizers write bytes as: printable Latin-1 bytes
    as themselves, the others as the letters from U+0100 on, in order."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(0x100 + index) for index, byte in enumerate(others)}


def tokenizer():
    letters = byte_letters()
    vocabulary = {letters[byte]: byte for byte in range(256)}
    vocabulary |= {f"w{number}": number for number in range(256, VOCABULARY - len(SPECIAL))}
    first = VOCABULARY - len(SPECIAL)
    added = [{"id": first + index, "content": text, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for index, text in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None, "pre_tokenizer": byte_level, "post_processor": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocabulary, "merges": []}}


def config(layers):
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16",
            "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": layers,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
            "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
            "attention_bias": False, "eos_token_id": VOCABULARY - len(SPECIAL),
            "bos_token_id": VOCABULARY - len(SPECIAL)}


def make(directory, layers=4):
    """Returns the directory's path."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": config(layers),
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast",
                                  "model_max_length": POSITIONS, "eos_token": SPECIAL[0],
                                  "clean_up_tokenization_spaces": False},
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=1) + "\n")
    return directory


def main():
    parser = argparse.ArgumentParser(description="write a tiny model directory")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    print(make(args.directory, args.layers))


if __name__ == "__main__":
    main()
