"""Runs architectures without native support: the module of `transformers` over Pagemill's pages.

`trace` runs the module once without weights and finds its attention layers; `module` is the result
and its memory; `executor` loads the weights and runs steps. Only `trace`, `attention`, `library`
and `executor` import torch.
"""
