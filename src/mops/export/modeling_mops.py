"""Classification or regression on pooled BERT states; shipped beside the weights it runs with.

`texts_apart`: a pair is two sequences, told apart by their token types, `[CLS] a [SEP]` with 0 and
`[CLS] b [SEP]` with 1; each is encoded alone, then `features` join the two vectors.
"""

import torch
from torch import nn
from transformers import BertConfig, BertModel, BertPreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_outputs import SequenceClassifierOutput

FEATURES = {
    "sum": lambda u, v: u + v,
    "concat": lambda u, v: torch.cat([u, v], dim=-1),
    "product": lambda u, v: u * v,
    "difference": lambda u, v: (u - v).abs(),
}


class MopsConfig(BertConfig):
    model_type = "mops"


class MopsForSequenceClassification(BertPreTrainedModel):
    config_class = MopsConfig

    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=config.pool == "pooler")
        self.late = build_layers(config.late)
        self.norm = nn.LayerNorm(config.vector_size, 1e-12) if config.norm else nn.Identity()
        self.hidden = build_layers(config.hidden)
        self.classifier = nn.Linear(config.head_size, config.head_outputs)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, labels=None, **options):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        texts = [(input_ids, mask, token_type_ids)]
        if self.config.texts_apart:
            texts = [self.take_text(input_ids, mask, token_type_ids == n) for n in (0, 1)]
        vectors = [self.norm(self.late(self.pool(*text, options))) for text in texts]
        own = [FEATURES[name](*vectors) for name in self.config.features] or vectors
        logits = self.classifier(self.hidden(torch.cat(own, dim=-1)))
        if self.config.ordinal:  # one output between neighbours: P(y > k), made to fall with k
            falling = logits.sigmoid().cummin(dim=-1).values
            edges = nn.functional.pad(falling, (1, 0), value=1.0)
            logits = (edges - nn.functional.pad(falling, (0, 1))).log()
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def take_text(self, input_ids, mask, is_own):
        """One text of each pair, in front; of a long one the first tokens and the last are kept."""
        is_own = is_own & mask.bool()
        length = is_own.sum(1, keepdim=True)
        order = is_own.int().argsort(dim=1, descending=True, stable=True)
        kept = length.clamp(max=self.config.text_length)
        places = torch.arange(int(kept.max()), device=input_ids.device)
        order = order.gather(1, torch.where(places == kept - 1, length - 1, places).clamp(min=0))
        return input_ids.gather(1, order), (places < kept).int(), None

    def pool(self, input_ids, mask, token_type_ids, options):
        output = self.bert(input_ids, attention_mask=mask, token_type_ids=token_type_ids, **options)
        if self.config.pool in ("pooler", "cls"):
            return output[1] if self.config.pool == "pooler" else output[0][:, 0]
        summed = (output[0] * mask[:, :, None]).sum(1)
        return summed / mask.sum(1, keepdim=True) if self.config.pool == "mean" else summed


def build_layers(rows):
    """Dense layers from (inputs, outputs, activation)."""
    pairs = ((nn.Linear(n_in, n_out), ACT2FN[name]) for n_in, n_out, name in rows)
    return nn.Sequential(*(module for pair in pairs for module in pair))
