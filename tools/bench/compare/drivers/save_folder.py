"""Writes a GGUF model as a Hugging Face folder in bf16: save_folder.py FILE.gguf FOLDER."""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Converts."""
    given, folder = Path(sys.argv[1]), sys.argv[2]
    source = {"pretrained_model_name_or_path": given.parent, "gguf_file": given.name}
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    # The loaded model counts as quantized and cannot be saved.
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    main()
