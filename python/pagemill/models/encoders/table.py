"""Encoders of text by the architecture in a config.json."""

from __future__ import annotations

from pagemill.models.architecture import Architecture

ENCODERS: dict[str, Architecture] = {
    "BertModel": Architecture("encoders.bert:BertModel", "BERT", ("bert",), "embeddings"),
    "CamembertModel": Architecture(
        "encoders.roberta:RobertaModel", "CamemBERT", ("camembert",), "embeddings"
    ),
    "Data2VecTextModel": Architecture(
        "encoders.data2vec:Data2VecModel", "Data2Vec (text)", ("data2vec-text",), "embeddings"
    ),
    "DistilBertModel": Architecture(
        "encoders.distilbert:DistilBertModel", "DistilBERT", ("distilbert",), "embeddings"
    ),
    "ElectraModel": Architecture(
        "encoders.electra:ElectraModel", "ELECTRA", ("electra",), "embeddings"
    ),
    "EuroBertModel": Architecture(
        "encoders.eurobert:EuroBertModel", "EuroBERT", ("eurobert",), "embeddings"
    ),
    "GteModel": Architecture("encoders.gte:GteModel", "GTE", ("gte",), "embeddings"),
    "HF_ColBERT": Architecture("encoders.bert:BertModel", "ColBERT", (), "embeddings"),
    "JinaEmbeddingsV3Model": Architecture(
        "encoders.jina3:Jina3Model", "Jina embeddings 3", ("jina_embeddings_v3",), "embeddings"
    ),
    "MPNetModel": Architecture("encoders.mpnet:MpNetModel", "MPNet", ("mpnet",), "embeddings"),
    "MT5EncoderModel": Architecture("encoders.t5:T5Model", "mT5, its encoder", (), "embeddings"),
    "ModernBertModel": Architecture(
        "encoders.modernbert:ModernBertModel", "ModernBERT", ("modernbert",), "embeddings"
    ),
    "NewModel": Architecture(
        "encoders.gte:GteModel", "GTE, as first saved", ("new",), "embeddings"
    ),
    "NomicBertModel": Architecture(
        "encoders.nomic_bert:NomicBertModel", "Nomic BERT", ("nomic_bert",), "embeddings"
    ),
    "RobertaModel": Architecture(
        "encoders.roberta:RobertaModel", "RoBERTa", ("roberta",), "embeddings"
    ),
    "T5EncoderModel": Architecture("encoders.t5:T5Model", "T5, its encoder", (), "embeddings"),
    "UMT5EncoderModel": Architecture("encoders.t5:T5Model", "UMT5, its encoder", (), "embeddings"),
    "XLMRobertaModel": Architecture(
        "encoders.roberta:RobertaModel", "XLM-RoBERTa", ("xlm-roberta",), "embeddings"
    ),
}
