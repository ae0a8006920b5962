"""Exported folders: transformers and sentence-transformers compute what the bundle computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import processors
from torch import Tensor

from building import ENTRIES, LETTERS, LONGEST, WORDS, build_network, shake, tiny_tokenizer
from mops.config.training import TaskEntry
from mops.data.batches import tokenise
from mops.errors import UsageError
from mops.export.hf import export_bundle
from mops.export.merge import MERGERS
from mops.kinds.classes import CLASS_LOGITS
from mops.model.network import Network
from mops.plans.catalog import every_plan
from mops.plans.shapes import HeadShape, Reading
from mops.predict.bundle import Bundle, load_bundle, save_bundle
from mops.predict.inference import compute_outputs

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
PLANS = (
    "shared",
    "hybrid:2",
    "late:ISS",
    "lora:3",
    "separate",
    "bitfit",
    "embert",
    "lhuc",
    "late:IN",
    "layers:FSSI",
)


def texts_of(count: int, texts: int, seed: int = 0) -> list[tuple[str, ...]]:
    """Rows of random words; the last ones are empty, or longer than the encoder can read."""
    draw = np.random.default_rng(seed)
    known = [*WORDS, *(letter for letter in LETTERS if "##" not in letter), "unknown"]
    lengths = [*draw.integers(1, 14, (count - 4, texts)), *[[0, 5], [60, 2], [3, 70], [70, 75]]]
    return [
        tuple(" ".join(draw.choice(known, length)) for length in row[:texts]) for row in lengths
    ]


def make_bundle(
    folder: Path,
    plan: Any,
    reading: Reading | None = None,
    entries: dict[str, TaskEntry] | None = None,
    encoder: Path | None = None,
) -> Bundle:
    """A bundle whose weights are all random, also those that begin at zero."""
    entries = entries or ENTRIES
    tasks = [entry.task(name) for name, entry in entries.items()]
    reading = reading or Reading(max_length=20)
    torch.manual_seed(0)  # of an encoder without a folder
    network: Network = build_network(plan, encoder, reading=reading, tasks=tasks)
    shake(network, seed=1)
    tokenizer = tiny_tokenizer()
    if network.layout.encoder.types == 1:  # RoBERTa's template
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] [SEP] $B:0 [SEP]",
            special_tokens=[(word, tokenizer.token_to_id(word)) for word in ("[CLS]", "[SEP]")],
        )
    save_bundle(folder, network, tokenizer, entries, {})
    return load_bundle(folder)


def bundle_logits(bundle: Bundle, name: str, texts: list[tuple[str, ...]]) -> np.ndarray:
    """One logit per class, or the similarity before it is limited to its range."""
    task = bundle.layout.tasks[name]
    table = tokenise(bundle.tokenizer, texts, bundle.layout.reading.of(name))
    outputs = compute_outputs(bundle.network, {name: table})[name].astype(np.float64)
    return outputs if not task.answer.has_labels else CLASS_LOGITS[task.loss_name](outputs)


def load_model(folder: Path) -> tuple[Any, Any]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    assert not any(report.values()), report  # nothing missing, nothing left over
    return tokenizer, model.eval()


def transformers_logits(folder: Path, texts: list[tuple[str, ...]]) -> Tensor:
    """In batches with padding."""
    tokenizer, model = load_model(folder)
    logits = []
    with torch.inference_mode():
        for start in range(0, len(texts), 5):
            columns = map(list, zip(*texts[start : start + 5], strict=True))
            batch = tokenizer(*columns, truncation=True, padding=True, return_tensors="pt")
            logits.append(model(**batch).logits)
    return torch.cat(logits)


def check_logits(bundle: Bundle, folder: Path, name: str) -> None:
    texts = texts_of(24, len(bundle.layout.tasks[name].text))
    expected = bundle_logits(bundle, name, texts)
    assert expected.std() > 0.01
    np.testing.assert_allclose(transformers_logits(folder / name, texts), expected, **CLOSE)


def check_export(bundle: Bundle, folder: Path) -> None:
    """Every task's folder gives the logits of the bundle."""
    assert export_bundle(bundle, folder) == [folder / name for name in bundle.layout.tasks]
    for name in bundle.layout.tasks:
        check_logits(bundle, folder, name)


# ------------------------------------------------------------------ equal logits


@pytest.mark.parametrize("plan", PLANS)
def test_every_task_of_a_plan_has_the_logits_of_the_bundle(plan: str, tmp_path: Path) -> None:
    check_export(make_bundle(tmp_path / "model", plan), tmp_path / "out")


@pytest.mark.parametrize("pool", ["pooler", "cls", "sum"])
@pytest.mark.parametrize("plan", ["hybrid:2", "late:SI"])
def test_every_pooling(plan: str, pool: str, tmp_path: Path) -> None:
    reading = Reading(max_length=20, pool=pool)
    check_export(make_bundle(tmp_path / "model", plan, reading), tmp_path / "out")


@pytest.mark.parametrize("family", ["roberta", "distilbert", "xlm-roberta"])
@pytest.mark.parametrize("pair", ["cross", "bi"])
def test_every_family_becomes_a_bert(
    family: str, pair: str, encoder_folder: Any, tmp_path: Path
) -> None:
    reading = Reading(max_length=LONGEST, pair=pair)
    folder = encoder_folder(family)
    check_export(make_bundle(tmp_path / "model", "shared", reading, encoder=folder), tmp_path / "o")


@pytest.mark.parametrize("features", [("difference", "product"), ("sum",), ("concat", "sum")])
def test_texts_that_are_read_apart(features: tuple[str, ...], tmp_path: Path) -> None:
    reading = Reading(max_length=12, pair="bi", features=features)
    check_export(make_bundle(tmp_path / "model", "late:IS", reading), tmp_path / "out")


def test_heads_with_norms_and_hidden_layers(tmp_path: Path) -> None:
    heads = {
        "sentiment": HeadShape(kind="mlp", depth=2, width=7, activation="gelu"),
        "paraphrase": HeadShape(norm=True),
        "similarity": HeadShape(kind="mlp", norm=True, activation="tanh"),
    }
    reading = Reading(max_length=20, pair={"similarity": "bi"}, heads=heads)
    check_export(make_bundle(tmp_path / "model", "shared", reading), tmp_path / "out")


def test_ordered_classes_have_the_logarithms_of_their_probabilities(tmp_path: Path) -> None:
    entry = ENTRIES["sentiment"].model_copy(update={"loss": "ordinal"})
    bundle = make_bundle(tmp_path / "model", "shared", entries={"sentiment": entry})
    export_bundle(bundle, tmp_path / "out")
    texts = texts_of(24, 1)
    ours = np.exp(bundle_logits(bundle, "sentiment", texts))
    theirs = transformers_logits(tmp_path / "out" / "sentiment", texts).exp()
    np.testing.assert_allclose(theirs, ours, **CLOSE)
    np.testing.assert_allclose(theirs.sum(1), 1, **CLOSE)


def test_gates_are_merged_too(tmp_path: Path) -> None:
    row = {
        "name": "low",
        "kind": "lora",
        "sites": ["in_attention"],
        "size": 2,
        "scale": 0.7,
        "per": {"down": ["layer"], "up": ["task"], "gate": ["layer", "task"]},
        "layers": [1, 2],
    }
    plan = {"name": "gated", "additions": [row]}
    check_export(make_bundle(tmp_path / "model", plan), tmp_path / "out")


def test_amplitudes_are_merged_at_every_site(tmp_path: Path) -> None:
    """Into dense layers and into norms that other layers have too, beside what else is there."""
    per: dict[str, Any] = {"vector": ["layer", "task"]}
    rows: list[dict[str, Any]] = [
        {"name": f"a{n}", "kind": "amplitude", "sites": [site], "per": per, "scale": 0.5 + n}
        for n, site in enumerate(("after_attention", "after_feedforward", "after_layer"))
    ]
    rows[1]["per"] = {**per, "gate": []}
    rows.append({**rows[0], "name": "b", "kind": "task_embedding"})
    plan = {"name": "a", "copies": [{"part": "norms", "per": []}], "additions": rows}
    check_export(make_bundle(tmp_path / "model", plan), tmp_path / "out")


def test_an_activation_cannot_be_merged(tmp_path: Path) -> None:
    row = {"name": "a", "kind": "lora", "sites": ["in_attention"], "activation": "gelu"}
    plan = {"name": "a", "additions": [{**row, "per": {"down": [], "up": ["task"]}}]}
    with pytest.raises(UsageError, match="no place for the addition 'a'"):
        export_bundle(make_bundle(tmp_path / "model", plan), tmp_path / "out")


def test_layers_that_share_their_weights_are_written_out(tmp_path: Path) -> None:
    copies = [{"part": "attention", "per": []}, {"part": "feedforward", "per": ["task"]}]
    check_export(make_bundle(tmp_path / "model", {"name": "a", "copies": copies}), tmp_path / "out")


# ------------------------------------------------------------------ what a folder says


@pytest.mark.parametrize(("pool", "is_stock"), [("cls", True), ("pooler", True), ("mean", False)])
def test_a_stock_class_is_used_where_it_computes_the_same(
    pool: str, is_stock: bool, tmp_path: Path
) -> None:
    bundle = make_bundle(tmp_path / "model", "hybrid:2", Reading(max_length=20, pool=pool))
    folder = export_bundle(bundle, tmp_path / "out")[0]
    assert (folder / "modeling_mops.py").exists() != is_stock
    assert ("trust_remote_code" in (folder / "README.md").read_text()) != is_stock
    if is_stock:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        assert type(model) is transformers.BertForSequenceClassification
    else:  # not silently a BERT with a random head
        with pytest.raises(ValueError, match="trust_remote_code"):
            transformers.AutoModelForSequenceClassification.from_pretrained(
                folder, trust_remote_code=False
            )


def test_labels_problem_types_and_lengths_are_those_of_the_tasks(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "model", "shared")
    for folder in export_bundle(bundle, tmp_path / "out"):
        task = bundle.layout.tasks[folder.name]
        tokenizer, model = load_model(folder)
        labels = task.labels or (task.name,)
        assert model.config.id2label == dict(enumerate(labels))
        assert model.config.label2id == {label: n for n, label in enumerate(labels)}
        kinds = {True: "regression", False: "single_label_classification"}
        assert model.config.problem_type == kinds[not task.answer.has_labels]
        assert tokenizer.model_max_length == bundle.layout.reading.max_length


def test_the_tokenizer_gives_the_ids_of_the_bundle(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "model", "shared")
    for folder in export_bundle(bundle, tmp_path / "out"):
        texts = texts_of(24, len(bundle.layout.tasks[folder.name].text))
        table = tokenise(bundle.tokenizer, texts, bundle.layout.reading)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        columns = map(list, zip(*texts, strict=True))
        theirs = tokenizer(*columns, truncation=True)
        assert np.concatenate(theirs["input_ids"]).tolist() == table.ids.tolist()
        assert np.concatenate(theirs["token_type_ids"]).tolist() == table.types.tolist()


def test_a_pipeline_answers_with_the_labels(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "model", "shared", Reading(max_length=20, pool="cls"))
    folder = export_bundle(bundle, tmp_path / "out")[0]
    texts = ["ban bat", "bet"]
    pipe = transformers.pipeline("text-classification", str(folder), device="cpu")
    logits = bundle_logits(bundle, "sentiment", [(text,) for text in texts])
    expected = [bundle.layout.tasks["sentiment"].labels[n] for n in logits.argmax(1)]
    assert [row["label"] for row in pipe(texts)] == expected


def test_a_folder_can_be_trained_further(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "model", "shared", Reading(max_length=20, pair="bi"))
    export_bundle(bundle, tmp_path / "out")
    tokenizer, model = load_model(tmp_path / "out" / "paraphrase")
    batch = tokenizer(["ban", "bat bet"], ["bet", "ban"], padding=True, return_tensors="pt")
    output = model(**batch, labels=torch.tensor([0, 1]))
    expected = torch.nn.functional.cross_entropy(output.logits, torch.tensor([0, 1]))
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward()
    assert model.bert.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_the_bundle_stays_as_it_was(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "model", "lora:3")
    before = {name: tensor.clone() for name, tensor in bundle.network.weights().items()}
    export_bundle(bundle, tmp_path / "out")
    for name, tensor in bundle.network.weights().items():
        assert torch.equal(tensor, before[name]), name


# ------------------------------------------------------------------ a cosine head


@pytest.mark.parametrize("pool", ["mean", "cls", "pooler"])
@pytest.mark.parametrize(
    ("plan", "head"),
    [
        ("hybrid:2", HeadShape(kind="cosine")),
        ("late:SI", HeadShape(kind="cosine", norm=True, project=True, scale="learned")),
        ("late:IN", HeadShape(kind="cosine")),
    ],
)
def test_a_cosine_head_becomes_a_sentence_transformer(
    plan: str, head: HeadShape, pool: str, tmp_path: Path
) -> None:
    library = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    reading = Reading(
        max_length=12, pool=pool, pair={"similarity": "bi"}, heads={"similarity": head}
    )
    bundle = make_bundle(tmp_path / "model", plan, reading)
    with torch.no_grad():  # small vectors, so that another epsilon of a norm would show
        for owner in bundle.layout.routes["similarity"].late:
            for parameter in bundle.network.bank[owner].parameters():
                parameter.mul_(0.05)
    folder = export_bundle(bundle, tmp_path / "out")[2]
    model = library.SentenceTransformer(str(folder), device="cpu")
    assert model.similarity_fn_name == "cosine"
    texts = texts_of(24, 2)
    first, second = (model.encode([row[n] for row in texts]) for n in (0, 1))
    cosine = model.similarity_pairwise(first, second).numpy()
    assert cosine.std() > 1e-3
    formula = (folder / "README.md").read_text().partition("value = ")[2].partition("  #")[0]
    values = [eval(formula, {"cosine": float(each), "max": max}) for each in cosine]
    np.testing.assert_allclose(values, bundle_logits(bundle, "similarity", texts)[:, 0], **CLOSE)
    check_logits(bundle, tmp_path / "out", "paraphrase")


# ------------------------------------------------------------------ refusals

REFUSED = {
    "pals:parallel": r"the addition 'pal' \(pal, beside_layer\)",
    "pals:top": r"the addition 'pal_top' \(pal, on_top\)",
    "embert-pals": r"the addition 'pal' \(pal, beside_layer\), .*\(pal, on_top\)",
    "adapters:4": r"the addition 'adapter_1' \(bottleneck, after_attention\)",
    "low-rank:3": r"the addition 'low_rank' \(low_rank, beside_layer\)",
    "experts:2": r"the addition 'experts' \(experts, beside_layer\)",
    "late:NS": r"a norm below a late layer or another norm",
    "progressive": r"'paraphrase' .* the logits of 'sentiment' that are fed into the head",
}


@pytest.mark.parametrize("plan", REFUSED)
def test_what_cannot_be_expressed_is_refused_in_one_line(plan: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "model", plan)
    with pytest.raises(UsageError, match=REFUSED[plan]) as refused:
        export_bundle(bundle, tmp_path / "out")
    assert "\n" not in str(refused.value) and "nothing was written" in str(refused.value)
    assert not (tmp_path / "out").exists()


FOREIGN = {"electra": "the projected embeddings", "modernbert": "the rotary positions"}


@pytest.mark.parametrize("family", FOREIGN)
def test_what_no_bert_computes_is_refused_in_one_line(
    family: str, encoder_folder: Any, tmp_path: Path
) -> None:
    bundle = make_bundle(tmp_path / "model", "shared", encoder=encoder_folder(family))
    with pytest.raises(UsageError, match=f"no place for {FOREIGN[family]} of {family};") as refused:
        export_bundle(bundle, tmp_path / "out")
    assert "\n" not in str(refused.value) and not (tmp_path / "out").exists()


def test_every_plan_is_exported_or_refused(tmp_path: Path) -> None:
    """The rows of a plan decide, not its name."""
    for n, plan in enumerate(every_plan(4, tuple(ENTRIES))):
        bundle = make_bundle(tmp_path / f"model{n}", plan)
        others = {row.kind for row in plan.additions} - set(MERGERS)
        if others or plan.feeds:
            with pytest.raises(UsageError, match="no place for"):
                export_bundle(bundle, tmp_path / f"out{n}")
        else:
            assert len(export_bundle(bundle, tmp_path / f"out{n}")) == len(ENTRIES)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "model", "shared")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        export_bundle(bundle, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_an_export_is_replaced_by_the_same_command(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "model", "shared")
    folder = export_bundle(bundle, tmp_path / "out")[0]
    shake(bundle.network, seed=2)
    export_bundle(bundle, tmp_path / "out")
    stored = load_file(folder / "model.safetensors")["classifier.weight"]
    assert torch.equal(stored, bundle.network.bank["head/sentiment"].output.weight)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "mops"
