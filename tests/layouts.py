"""Folders of data as people have them, and what `mops init` should decide about each."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SENTENCE = (
    "the printer cannot find its network after update please send new invoice customer waits long "
    "screen turns black when I open settings great service slow answer wrong address order arrived "
    "late battery lasts two days only half price"
)
WORDS = SENTENCE.split()
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Layout:
    """Files, parts of the expected entries, and of the reasons for what is left out.

    Of the kinds that mops does not train, the reason alone is expected.
    """

    name: str
    write: Callable[[Path], None]
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()


def texts(count: int, seed: int = 0, length: int = 9) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(5, length))) for _ in range(count)]


def values(count: int, *choices: Any, seed: int = 0) -> list[Any]:
    """All choices, again and again, in a random order."""
    drawn = [choices[n % len(choices)] for n in range(count)]
    random.Random(seed).shuffle(drawn)
    return drawn


def rows(count: int, **columns: Iterable[Any]) -> Rows:
    return [
        dict(zip(columns, row, strict=True))
        for _, row in zip(range(count), zip(*columns.values(), strict=False), strict=False)
    ]


def delimited(records: Rows, mark: str = ",", header: bool = True) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=mark)
    writer.writerows(([list(records[0])] if header else []) + [list(r.values()) for r in records])
    return out.getvalue()


def save(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def table(name: str, mark: str = ",", **columns: Iterable[Any]) -> Callable[[Path], None]:
    return lambda root: save(root / name, delimited(rows(40, **columns), mark))


def several(*writers: Callable[[Path], None]) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for writer in writers:
            writer(root)

    return write


def lines(name: str, records: Rows) -> Callable[[Path], None]:
    return lambda root: save(root / name, "\n".join(json.dumps(row) for row in records))


def parquet(name: str, records: Rows) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), root / name)

    return write


def sentences(count: int, *more: str) -> str:
    """CoNLL blocks: a word, further columns, and a BIO tag."""
    draw, out = random.Random(3), []
    for n in range(count):
        out += [
            "\t".join((word, *more, draw.choice(["O", "O", "B-PER", "I-PER"])))
            for word in (*texts(1, seed=n)[0].split(), f"Name{n}")
        ]
        out.append("")
    return "\n".join(out)


T, U = texts(40), texts(40, seed=1)
IDS = [f"T-{n:05d}" for n in range(40)]
CLASS, PAIR = {"type": "classification"}, {"type": "pair_classification"}
MULTI, TAGGING = {"type": "multilabel"}, {"type": "tagging"}
SPLITS = values(40, "train", "train", "dev", "test")
COLA = [["gj04", str(n % 2), "" if n % 2 else "*", text] for n, text in enumerate(T)]

LAYOUTS = (
    Layout(
        "tickets",
        table(
            "tickets.csv", ticket_id=IDS, body=T, urgency=values(40, "low", "high", "medium"),
            tags=values(40, "billing", "login; printer;", "printer;billing", "login"),
            created=[f"2024-03-{n % 28 + 1:02d}" for n in range(40)],
        ),
        {
            "urgency": CLASS | {"text": "body", "label": "urgency", "split": 0.1},
            "tags": MULTI | {"label": "tags", "separator": ";"},
        },
        comments=("ticket_id (ids, 40 different)", "created (dates)", "3 values: high, low, "),
    ),
    Layout(
        "five kinds",
        table(
            "all.csv", body=[f"{text} and so on" for text in T], reply=U,
            urgency=values(40, "low", "high"), topics=values(40, "a", "b;c", "a;c", "b"),
            effort_score=[n + 0.5 for n in range(40)], relevance=[n / 8 for n in range(40)],
            tags=[" ".join("B-X" if len(w) > 5 else "O" for w in f"{text} and so on".split())
                  for text in T],
        ),
        {
            "urgency": CLASS | {"text": "body"}, "topics": MULTI | {"text": "body"},
            "effort_score": {"type": "regression", "text": "body", "range": [0, 40]},
            "relevance": {"type": "similarity", "text": ["body", "reply"], "range": [0, 5]},
            "tags": TAGGING | {"text": "body"},
        },
        comments=("whose words have tags; could also be a pair with reply", "two columns of texts"),
    ),
    Layout(
        "numbers, a tagged text and a longer reply",
        table(
            "all.csv", id=range(40), text=T, reply=[f"{text} indeed" for text in T],
            category=values(40, "a", "b"), topics=values(40, "x;y", "y", "x;z", "z"),
            price=[n + 0.25 for n in range(40)], clicks=values(40, *range(30)),
            similarity=[n / 8 for n in range(40)],
            ner_tags=[" ".join("B-X" if len(w) > 5 else "O" for w in t.split()) for t in T],
        ),
        {
            "category": CLASS | {"text": "text"}, "topics": MULTI | {"text": "text"},
            "price": {"type": "regression", "text": "text", "range": [0, 40]},
            "similarity": {"type": "similarity", "text": ["text", "reply"]},
            "ner_tags": TAGGING | {"text": "text"},
        },
        ("column clicks (30 values, ordered numbers from 0 to 29): whole numbers, which may count "
         "something; a task with this `label` would predict it",),
        ("whose words have tags; could also be a pair with reply",),
    ),
    Layout(
        "a text and a longer reply",
        table("all.csv", text=T, reply=[f"{text} indeed" for text in T],
              mood=values(40, "a", "b"), similarity=[n / 8 for n in range(40)]),
        {"mood": CLASS | {"text": "text"},
         "similarity": {"type": "similarity", "text": ["text", "reply"]}},
        comments=("named as texts are; could also be a pair with reply",),
    ),
    Layout(
        "cells without labels",
        table("posts.csv", body=T, tags=values(40, "a;b", "", "b;c", "c", "", "a;c")),
        {"posts": MULTI | {"separator": ";", "empty": "no_labels", "on_bad_row": None}},
        comments=("13 of 40 cells are empty: none of the labels; `missing` leaves these rows out",),
    ),
    Layout(
        "one cell without labels",
        table("posts.csv", body=T, tags=["", *values(39, "a;b", "b;c", "c", "a;c")]),
        {"posts": MULTI | {"separator": ";", "empty": None, "on_bad_row": "skip"}},
        comments=("1 of 40 rows have none",),
    ),
    Layout(
        "lists of which some have no item",
        lines("e.jsonl", rows(40, text=T, labels=values(40, ["a"], ["b", "a"], [], None))),
        {"e": MULTI | {"empty": None}},
        comments=("10 of 40 rows have none",),
    ),
    Layout(
        "hashtags",
        table("posts.csv", post=T, hashtags=values(40, "#a #b", "#b #c", "#c", "#a #c"),
              colours=values(40, "red blue", "blue", "red green", "green")),
        {"hashtags": MULTI | {"separator": " "}, "colours": CLASS},
        comments=("4 values: blue, green, red blue, red green; could also be a multilabel with "
                  "separator: ' '",),
    ),
    Layout(
        "nan beside words",
        table("a.csv", text=T, answer=values(40, "yes", "no", "nan", "no")),
        {"a": CLASS | {"label": "answer", "on_bad_row": "skip"}},
        comments=("2 values: no, yes; 10 of 40 rows have none",),
    ),
    Layout(
        "ratings",
        table("reviews.csv", text=T, rating=values(40, 1, 2.5, 3, 4, 5)),
        {"reviews": {"type": "regression", "text": "text", "label": "rating", "range": [1, 5]}},
    ),
    Layout(
        "stars",
        table("reviews.csv", review=T, stars=values(40, 1, 2, 3, 4, 5)),
        {"reviews": CLASS | {"label": "stars"}},
        comments=("5 values, ordered numbers: 1, 2, 3, 4, 5; could also be", "loss: ordinal"),
    ),
    Layout(
        "several labels",
        table(
            "posts.tsv", "\t", post=T, topic=values(40, "a", "b", "c"),
            is_spam=values(40, 0, 1), author_country=values(40, "de", "fr", "nl", seed=2),
        ),
        {"topic": CLASS | {"text": "post"}, "is_spam": CLASS | {"text": "post"}},
        comments=("author_country (3 values: de, fr, nl)",),
    ),
    Layout(
        "0/1 columns",
        table(
            "toxic.csv", id=IDS, comment_text=T, toxic=values(40, 0, 1), threat=values(40, 0, 0, 1),
            insult=values(40, 0, 1, seed=3),
        ),
        {"toxic": MULTI | {"text": "comment_text", "label": ["toxic", "threat", "insult"]}},
    ),
    Layout(
        "split column",
        table("all.csv", utterance=T, intent=values(40, "ask", "buy"), subset=SPLITS),
        {"all": CLASS | {"label": "intent", "split_column": "subset", "split": None}},
        comments=("names the split of a row: dev, test, train",),
    ),
    Layout(
        "excel, semicolons and decimal commas",
        lambda root: save(
            root / "noten.csv",
            b"\xef\xbb\xbf"
            + delimited(
                rows(40, Frage=T, Antwort=U, Note=values(40, "1", "2,5", "3", "4,25")), ";"
            ).encode(),
        ),
        {"noten": {"type": "similarity", "text": ["Frage", "Antwort"], "range": [1, 5],
                   "decimal": ","}},
        comments=("numbers like 2,5",),
    ),
    Layout(
        "excel, points between thousands",
        table("haus.csv", ";", Anzeige=T,
              Preis=values(40, "1.234,56", "2.500", "980,00", "12.000,5", "1.000.000,25")),
        {"haus": {"type": "regression", "text": "Anzeige", "decimal": ",",
                  "range": [980, 1_000_001]}},
    ),
    Layout(
        "excel, utf-16",
        lambda root: save(
            root / "sheet.txt",
            delimited(rows(40, Text=T, Kind=values(40, "ä", "ö")), "\t").encode("utf-16"),
        ),
        {"sheet": CLASS | {"text": "Text", "label": "Kind"}},
    ),
    Layout(
        "nested json lines",
        lines(
            "rows.jsonl",
            [{"id": n, "data": {"text": a, "meta": {"lang": "en"}}, "label": {"name": b}}
             for n, (a, b) in enumerate(zip(T, values(40, "x", "y"), strict=True))],
        ),
        {"rows": CLASS | {"text": "data.text", "label": "label.name"}},
    ),
    Layout(
        "parquet",
        several(
            parquet("train.parquet", rows(40, question=T, label=values(40, 0, 1, 2))),
            parquet("validation.parquet", rows(20, question=U, label=values(40, 0, 1, 2))),
        ),
        {"parquet": CLASS | {"text": "question", "split": None}},
    ),
    Layout(
        "cola without header",
        several(
            lambda root: save(root / "in_domain_train.tsv", "\n".join(map("\t".join, COLA))),
            lambda root: save(root / "in_domain_dev.tsv", "\n".join(map("\t".join, COLA[:20]))),
            lambda root: save(root / "out_of_domain_dev.tsv", "\n".join(map("\t".join, COLA[9:]))),
        ),
        {"in-domain": CLASS | {"columns": ["source", "label", "mark", "sentence"],
                               "text": "sentence", "label": "label", "split": None}},
        ("out_of_domain_dev.tsv: a further validation file of in_domain_train.tsv",),
    ),
    Layout(
        "cola",  # a known name, and a file that is not one of its own
        several(*(
            lambda root, name=name: save(
                root / f"{name}.tsv", delimited(rows(40, sentence=T, label=values(40, 0, 1)), "\t")
            )
            for name in ("train", "dev", "dev_ood")
        )),
        {"cola": CLASS | {"text": "sentence", "split": None}},
        ("dev_ood.tsv: not one of the files of the known cola",),
    ),
    Layout(
        "conll-2003",
        several(*(
            lambda root, split=split: save(root / f"eng.{split}", sentences(20, "NN"))
            for split in ("train", "testa", "testb")
        ), lambda root: save(root / "README", "Words, with tags.\nOne, or two, per line.\n"),
            lambda root: save(root / "model.bin", bytes(range(256)) * 9)),
        {"eng": TAGGING | {"text": "tokens", "label": "tags", "split": None,
                           "columns": ["tokens", "column2", "tags"]}},
        ("README and 1 more: not a table",),
    ),
    Layout(
        "lines of json without an ending",
        lines("posts", rows(40, text=T, label=values(40, 0, 1))),
        {"posts": CLASS},
    ),
    Layout(
        "json: rows under a key",
        lambda root: save(root / "a.json", json.dumps(
            {"version": 2, "data": rows(40, text=T, label=values(40, 0, 1))}, indent=1)),
        {"a": CLASS | {"text": "text"}},
    ),
    Layout(
        "machamp classification",
        several(
            lambda root: save(root / "sent.train", "x"),
            lambda root: save(
                root / "topic-train.tsv",
                delimited(rows(40, i=IDS, t=T, l=values(40, "sport", "news")), "\t", header=False),
            ),
        ),
        {"topic": CLASS | {"columns": ["column1", "text", "label"], "text": "text"}},
        ("sent.train: not a table",),
    ),
    Layout(
        "machamp tagging",
        lambda root: save(root / "ner-train.tsv", sentences(20)),
        {"ner": TAGGING | {"text": "tokens", "label": "tags", "columns": ["tokens", "tags"]}},
    ),
    Layout(
        "conll",
        lambda root: save(root / "train.conll", sentences(20, "NN")),
        {"conll": TAGGING | {"text": "tokens", "label": "tags"}},
    ),
    Layout(
        "conll-u",
        lambda root: save(root / "en-train.conllu", "\n".join(
            f"# text = {text}\n" + "\n".join(
                "\t".join([str(n), word, word, "NX"[len(word) > 4], "_", "_", str(n - 1), *"d__"])
                for n, word in enumerate(text.split(), start=1)
            ) + "\n" for text in T)),
        {"en": TAGGING | {"text": "form", "label": "upos"}},
    ),
    Layout(
        "json tokens",
        lines(
            "slots.jsonl",
            [{"tokens": t.split(), "ner_tags": [w[0] < "f" for w in t.split()], "intent": i}
             for t, i in zip(T, values(40, "x", "y"), strict=True)],
        ),
        {"slots": TAGGING | {"text": "tokens", "label": "ner_tags"}},
    ),
    Layout(
        "json lists of labels",
        lines("emotions.jsonl", rows(40, text=T, labels=values(40, ["joy"], ["fear", "joy"], []))),
        {"emotions": MULTI | {"text": "text", "label": "labels"}},
    ),
    Layout(
        "kaggle",
        several(
            table("train.csv", id=range(40), keyword=values(40, "fire", "flood"), text=T,
                  target=values(40, 0, 1)),
            table("test.csv", id=range(40), keyword=values(40, "fire", "flood"), text=U),
            table("sample_submission.csv", id=range(40), target=values(40, 0)),
        ),
        {"kaggle": CLASS | {"text": "text", "label": "target", "split": 0.1}},
        ("sample_submission.csv: no text column; its columns: id (ids, 40 different); "
         "target (only the value '0')",),
    ),
    Layout(
        "pairs",
        table("pairs.csv", qid=IDS, q1=T, q2=U, same=values(40, "yes", "no")),
        {"pairs": PAIR | {"text": ["q1", "q2"], "label": "same"}},
        comments=("names that differ by their side",),
    ),
    Layout(
        "snli with parses",
        lines(
            "snli_train.jsonl",
            rows(40, gold_label=values(40, "neutral", "contradiction"), sentence1=T,
                 sentence1_parse=[f"(ROOT {t} )" for t in T], sentence2=U, pairID=IDS),
        ),
        {"snli": PAIR | {"text": ["sentence1", "sentence2"], "label": "gold_label"}},
    ),
    Layout(
        "many classes as numbers",
        lambda root: save(root / "intents.csv", delimited(
            rows(120, text=texts(120), label=values(120, *range(20))))),
        {"intents": CLASS | {"label": "label"}},
    ),
    Layout(
        "class is sorted and has gaps",
        lambda root: save(root / "sorted.csv", delimited(
            rows(60, verse=texts(60), mood=["sad"] * 30 + ["glad"] * 25 + [""] * 5))),
        {"sorted": CLASS | {"label": "mood", "on_bad_row": "skip"}},
        comments=("5 of 60 rows have none", "5 of 60 rows cannot be used"),
    ),
    Layout(
        "label and its words",
        parquet("train.parquet", rows(
            40, text=T, label=values(40, 0, 1, 2), label_text=values(40, "bad", "so so", "good"))),
        {"label": CLASS | {"label": "label"}},
        comments=("label_text (3 values: bad, good, so so)",),
    ),
    Layout(
        "sts benchmark without header",
        lambda root: save(root / "sts-train.csv", delimited(rows(
            40, a=values(40, "main-captions", "main-forums", "main-news"),
            b=values(40, "MSRvid", "images"), c=values(40, "2012test", "2014"), d=range(40),
            e=values(40, "0.000", "2.400", "5.000", "3.125"), f=T, g=U), "\t", header=False)),
        {"sts": {"type": "similarity", "text": ["sentence1", "sentence2"], "label": "score",
                 "range": [0, 5]}},
    ),
    Layout(
        "goemotions without header",
        lambda root: save(root / "train.tsv", delimited(rows(
            40, a=T, b=values(40, "27", "2,27", "3", "2,3,27"), c=IDS), "\t", header=False)),
        {"goemotions": MULTI | {"text": "text", "label": "label", "separator": ","}},
    ),
    Layout(
        "numbers that are missing",
        table("a.csv", text=T, stars=values(40, 1, 2, 3, "NA", "")),
        {"a": CLASS | {"labels": ["1", "2", "3"], "on_bad_row": "skip"}},
    ),
    Layout(
        "classes with a stroke or a comma",
        table("news.csv", ";", story=T, topics=values(40, "World", "Sci/Tech", "Sports"),
              level=values(40, "1,0", "2,0", "3,0", "n/a"), other=values(40, "a, b", "c, d")),
        {
            "topics": CLASS | {"label": "topics"},
            "level": CLASS | {"label": "level", "decimal": ",", "on_bad_row": "skip"},
            "other": CLASS | {"label": "other"},
        },
    ),
    Layout(
        "chinese",
        table("weibo.csv", review=[f"我喜欢这部电影{chr(0x4E00 + n)}" for n in range(40)],
              kind=values(40, "好", "坏")),
        {"weibo": CLASS | {"text": "review", "label": "kind"}},
    ),
    Layout(
        "long classes",
        lambda root: save(root / "c.csv", delimited(rows(
            120, consumer_complaint_narrative=texts(120), product=values(
                120, "Credit reporting, credit repair services, or other personal consumer reports",
                "Debt collection", "Checking or savings account")))),
        {"c": CLASS | {"text": "consumer_complaint_narrative", "label": "product"}},
    ),
    Layout(
        "news: title and description",
        table("news.csv", class_index=values(40, 1, 2, 3, 4), title=texts(40, 5),
              description=texts(40, 6, 30)),
        {"news": PAIR | {"text": ["title", "description"], "label": "class_index"}},
        comments=("two columns of texts; could also be description alone",),
    ),
    Layout(
        "shop reviews",
        table("shop.tsv", "\t", marketplace=["US"] * 40, review_id=IDS,
              product_parent=range(900, 940), star_rating=values(40, 1, 2, 3, 4, 5),
              helpful_votes=values(40, *range(13)),
              review_body=T, review_date=["2015-08-31"] * 39 + ["2015-08-30"]),
        {"shop": CLASS | {"text": "review_body", "label": "star_rating"}},
        comments=("helpful_votes (",),
    ),
    Layout(
        "ids as texts",
        table("a.csv", text=IDS, label=values(40, 0, 1)),
        reasons=("text (ids, 40 different)",),
    ),
    Layout("empty file", lambda root: save(root / "e.csv", ""), reasons=("e.csv: no rows",)),
    Layout(
        "one column", table("lines.txt", text=T), reasons=("no label column",)
    ),
    Layout(
        "all texts equal",
        table("same.csv", text=["the same words again"] * 40, label=values(40, 0, 1)),
        reasons=("no text column; its columns: text (only the value 'the same words again')",),
    ),
    Layout(
        "constant label",
        table("constant.csv", text=T, label=["x"] * 40),
        reasons=("no label column; its columns: text", "label (only the value 'x')"),
    ),
    Layout(
        "ids and dates only",
        table("log.csv", key=[f"a{n}-f" for n in range(40)],
              at=["2024-01-02 10:00"] * 20 + ["2024-01-03"] * 20),
        reasons=("key (ids, 40 different); at (dates)",),
    ),
    Layout(
        "names that occur twice",
        lambda root: save(root / "twice.csv", "text,note,note,label\n" + "".join(
            f"{t},a,b,{n % 2}\n" for n, t in enumerate(T))),
        {"twice": CLASS | {"text": "text", "label": "label"}},
    ),
    Layout(
        "text occurs twice",
        lambda root: save(root / "twice.csv", "text,text,label\n" + "".join(
            f"{t},{t},{n % 2}\n" for n, t in enumerate(T))),
        reasons=("text (occurs twice in the header)",),
    ),
    Layout(
        "thirty files",
        several(*(table(f"task-{n}.csv", text=T, label=values(40, 0, 1)) for n in range(30))),
        {f"task-{n}": CLASS for n in range(30)},
    ),
    Layout(
        "parts of a download",
        several(
            *(parquet(f"train-{n:05d}-of-00003.parquet", rows(
                40, text=texts(40, n), label=values(40, 0, 1))) for n in range(3)),
            *(parquet(f"test-{n:05d}-of-00002.parquet", rows(
                40, text=texts(40, n + 9), label=values(40, 0, 1))) for n in range(2)),
        ),
        {"parts": CLASS},
        ("test-00001-of-00002.parquet: a further part of the test rows",),
    ),
    Layout(
        "splits as folders",
        several(*(
            table(f"{split}/data.csv", words=T, mood=values(40, "sad", "glad"))
            for split in ("train", "val", "test")
        )),
        {"data": CLASS | {"text": "words", "split": None}},
    ),
    Layout(
        "a source and a target",
        table("a.csv", message=T, source=values(40, "Daily News", "Evening Post", "Radio One"),
              target=values(40, "very good", "very bad")),
        {"a": CLASS | {"text": "message", "label": "target"}},
        comments=("source (3 values: Daily News, Evening Post, Radio One)",),
    ),
    Layout(
        "hundreds of texts",
        several(*(
            lambda root, n=n: save(root / f"pos/{n}.txt", texts(1, n)[0]) for n in range(99)
        )),
        reasons=("pos/0.txt and 98 more: a file for each text; write them into one csv",),
    ),
    Layout(
        "files that are no tables",
        several(
            table("a.csv", text=T, label=values(40, 0, 1)),
            lambda root: save(root / "b.xlsx", "PK"), lambda root: save(root / "c.xlsx", "PK"),
            lambda root: save(root / "d.csv", "text;label\nna\xefve;1\n".encode("latin-1")),
            lambda root: save(root / "pos/deep/1.txt", "good"),
        ),
        {"a": CLASS},
        ("b.xlsx and 1 more: not a table", "d.csv", "not UTF-8", "pos/deep: a folder"),
    ),
)  # fmt: skip
