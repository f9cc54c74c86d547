"""docs/models.md, from the table of architectures:

python -m pagemill.cli.model_reference > docs/models.md
"""

import sys
from typing import Any

from pagemill.cli.models import architectures, counts

_HEAD = """\
# Models

Made from the table of architectures by `python -m pagemill.cli.model_reference`; a test compares.
`pagemill models` prints it.

A model is a folder with a `config.json` and safetensors files, a `.gguf` file, a hub id, or a
[URL](#by-url). The first of the configuration's `architectures` chooses the row, or its
`model_type` if it names none; [packages may add rows](plugins.md). GGUF files of the architectures
in the last column are read, too. A row also stands for the same model with the head of a classifier
(`...ForSequenceClassification`, `...ForTokenClassification`) or without any (`...Model`). All embed
and classify as `--task` and their files say ([tasks](http.md#models-that-pool)). Each row runs on
the native executor and on torch, and has a test that compares it with `transformers`;
[how to add one](add_a_model.md). [Images](images.md), [video](video.md) and [audio](audio.md) say
what the rows take that have them.

*Ranks* says whether `--tensor-parallel-size` [divides](tensor_parallel.md) the model: "partly" if
every rank computes some layers or projections whole. *Cuts* says
behind which layers its program can be cut into the stages of
[`--pipeline-parallel-size`](pipeline_parallel.md). Tests hold each row to both.

| architecture | models | `model_type` | task | ranks | cuts | GGUF |
|---|---|---|---|---|---|---|
"""
_BY_URL = """\

## By URL

    pagemill serve s3://bucket/models/llama            # also gs:// and az://
    pagemill serve s3://bucket/models/llama-q4.gguf
    pagemill serve modelscope://owner/name --revision v1

The data of the folder (safetensors, GGUF, JSON, templates) is fetched once into the cache folder,
by the package for its place, which the first try names (`s3fs`, `gcsfs`, `adlfs`,
`modelscope-hub`) and which finds credentials and endpoints where it always does: `AWS_PROFILE`,
`AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS` and so on. Later starts use the copy and no
network; to have another version, remove it from `urls/` of the cache folder. What an interrupted
fetch had completed is used by the next one, if the store still lists the same files. Only the
command line and configuration name URLs: in requests they are refused.
"""
_FALLBACK = """\

## Other architectures

An architecture that is not in the table is run by the module of `transformers` over Pagemill's
paged KV cache, if the library has it: `pip install 'pagemill[transformers]'`. That is several
times slower, and the start logs a warning. `--model-impl native` refuses such models, and
`--model-impl transformers` runs those of the table so, too. Decoders generate text or embed;
encoders embed.

`pagemill plan` says what a model takes, or why it cannot run: a module must attend through the
library's interface for other implementations of attention, to all earlier tokens or a sliding
window, once in a layer. Modules with recurrent states, convolutions, sparse or chunked attention,
or biases on scores are refused, and so are quantized checkpoints and GGUF files. Code from a
model's repository is never run. KV tiers, adapters, draft models, tensor parallelism, 8-bit KV
caches and weight updates need native support. [How it
works](decisions/0075-other-architectures-run-in-place.md).

## Missing

Phi-3-small and Phi-4-mini-flash; encoders of images and sound
except those of the table's models with them. Layers that predict further tokens (`mtp`,
`num_nextn_predict_layers`) are used for [drafts](sampling.md#drafts), those of the families named
there; others are not used.

## Without weights

`--load-format dummy` takes a folder with a `config.json` and no weights: they are random, the
same at each start, for measurements. `pagemill plan` then writes nothing of their size; `serve`,
`bench` and others keep a file in the cache folder as large as the checkpoint. Of checkpoints that
are quantized there are none.
"""


def reference() -> str:
    """Returns the whole document."""
    rows = architectures()
    return "".join([_HEAD, *map(_row, rows), f"\n{counts(rows)}.\n", _BY_URL, _FALLBACK])


def _row(row: dict[str, Any]) -> str:
    types, gguf = (", ".join(f"`{name}`" for name in row[key]) for key in ("model_types", "gguf"))
    cells = [f"`{row['architecture']}`", row["title"], types, row["task"]]
    return f"| {' | '.join([*cells, row['tensor_parallel'], row['cuts'], gguf])} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
