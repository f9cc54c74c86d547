"""Encoders of text by the architecture in a config.json."""

from __future__ import annotations

from pagemill.models.architecture import Architecture

ENCODERS: dict[str, Architecture] = {
    "AlbertModel": Architecture("encoders.albert:AlbertModel", "ALBERT", ("albert",), "embeddings"),
    "BertModel": Architecture("encoders.bert:BertModel", "BERT", ("bert",), "embeddings"),
    "CamembertModel": Architecture(
        "encoders.roberta:RobertaModel", "CamemBERT", ("camembert",), "embeddings"
    ),
    "Data2VecTextModel": Architecture(
        "encoders.data2vec:Data2VecModel", "Data2Vec (text)", ("data2vec-text",), "embeddings"
    ),
    "DebertaV2Model": Architecture(
        "encoders.deberta_v2:DebertaV2Model",
        "DeBERTa 2 and 3",
        ("deberta-v2",),
        "embeddings",
    ),
    "DistilBertModel": Architecture(
        "encoders.distilbert:DistilBertModel", "DistilBERT", ("distilbert",), "embeddings"
    ),
    "ElectraModel": Architecture(
        "encoders.electra:ElectraModel", "ELECTRA", ("electra",), "embeddings"
    ),
    "ErnieModel": Architecture(
        "encoders.ernie:ErnieModel", "ERNIE 1 to 3", ("ernie",), "embeddings"
    ),
    "EsmModel": Architecture(
        "encoders.esm:EsmModel", "ESM-1b and ESM-2 (proteins)", ("esm",), "embeddings"
    ),
    "EuroBertModel": Architecture(
        "encoders.eurobert:EuroBertModel", "EuroBERT", ("eurobert",), "embeddings"
    ),
    "GteModel": Architecture("encoders.gte:GteModel", "GTE", ("gte",), "embeddings"),
    "GteNewModel": Architecture(
        "encoders.gte:GteModel", "GTE, as first saved and named apart", (), "embeddings"
    ),
    "HF_ColBERT": Architecture("encoders.bert:BertModel", "ColBERT", (), "embeddings"),
    "JinaBertModel": Architecture(
        "encoders.jina2:Jina2Model", "Jina embeddings 2", (), "embeddings"
    ),
    "JinaEmbeddingsV3Model": Architecture(
        "encoders.jina3:Jina3Model", "Jina embeddings 3", ("jina_embeddings_v3",), "embeddings"
    ),
    "MPNetModel": Architecture("encoders.mpnet:MpNetModel", "MPNet", ("mpnet",), "embeddings"),
    "MT5EncoderModel": Architecture("encoders.t5:T5Model", "mT5, its encoder", (), "embeddings"),
    "MegatronBertModel": Architecture(
        "encoders.megatron_bert:MegatronBertModel",
        "Megatron-BERT",
        ("megatron-bert",),
        "embeddings",
    ),
    "ModernBertModel": Architecture(
        "encoders.modernbert:ModernBertModel", "ModernBERT", ("modernbert",), "embeddings"
    ),
    "NeoBERT": Architecture("encoders.neobert:NeoBertModel", "NeoBERT", ("neobert",), "embeddings"),
    "NeoBERTLMHead": Architecture(
        "encoders.neobert:NeoBertModel", "NeoBERT, as published", (), "embeddings"
    ),
    "NewModel": Architecture(
        "encoders.gte:GteModel", "GTE, as first saved", ("new",), "embeddings"
    ),
    "NomicBertModel": Architecture(
        "encoders.nomic_bert:NomicBertModel", "Nomic BERT", ("nomic_bert",), "embeddings"
    ),
    "RemBertModel": Architecture(
        "encoders.rembert:RemBertModel", "RemBERT", ("rembert",), "embeddings"
    ),
    "RoFormerModel": Architecture(
        "encoders.roformer:RoFormerModel", "RoFormer", ("roformer",), "embeddings"
    ),
    "RobertaModel": Architecture(
        "encoders.roberta:RobertaModel", "RoBERTa", ("roberta",), "embeddings"
    ),
    "RobertaPreLayerNormModel": Architecture(
        "encoders.roberta_prelayernorm:RobertaPreLayerNormModel",
        "RoBERTa-PreLayerNorm",
        ("roberta-prelayernorm",),
        "embeddings",
    ),
    "T5EncoderModel": Architecture("encoders.t5:T5Model", "T5, its encoder", (), "embeddings"),
    "UMT5EncoderModel": Architecture("encoders.t5:T5Model", "UMT5, its encoder", (), "embeddings"),
    "XLMRobertaModel": Architecture(
        "encoders.roberta:RobertaModel", "XLM-RoBERTa", ("xlm-roberta",), "embeddings"
    ),
    "XLMRobertaXLModel": Architecture(
        "encoders.xlm_roberta_xl:XlmRobertaXlModel",
        "XLM-RoBERTa-XL",
        ("xlm-roberta-xl",),
        "embeddings",
    ),
}
