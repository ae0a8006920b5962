"""Opens any source as a table of records: csv, tsv, JSON, parquet, the hub, standard input."""

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import Any

from mops.data.readers import UTF_16, TextSource, find_dialect, open_text, whole
from mops.errors import DataError, nearest

HUB = "hub:"
TEXT_ENDINGS = (".tsv", ".csv", ".txt")
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
TAGGED_ENDINGS = (".conll", ".conllu", ".iob", ".iob2", ".bio")
CONLL_U = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NO_WORD = re.compile(r"\d+[-.]\d+\t")  # of CoNLL-U: a range of words, or an empty one
Columns = tuple[str, ...]
Objects = Iterable[tuple[int, Any]]  # line or number, and the value there


@dataclass(frozen=True, slots=True)
class RawRow:
    """One record; `line` is where it starts (in a JSON list, parquet and the hub: its number).

    `problem` says what is broken; `values` then holds what could be read, the rest is "".
    """

    line: int
    values: dict[str, str]
    problem: str = ""


@dataclass(frozen=True)
class DataTable:
    """A source with known columns; `form` says how it was read ("tab-separated text")."""

    source: str
    columns: Columns
    form: str
    records: Callable[[], Iterator[RawRow]] = field(repr=False, compare=False)  # may be repeated
    # About how many records there are; None where only reading them all would tell.
    count: Callable[[], int | None] = field(default=lambda: None, repr=False, compare=False)


def open_table(source: str | Path, wanted: Columns = (), *, names: Columns = ()) -> DataTable:
    """The table in `source`; `wanted` columns guide the detection and must not occur twice.

    `names` are the columns of delimited text that has no header line. Names with a dot lead into
    the objects of JSON lines.
    """
    text = str(source)
    if text.startswith(HUB):
        return _hub(text)
    path = None if text == "-" else existing(Path(source))
    ending = path.suffix.lower() if path else ""
    if path and ending == ".parquet":
        return _parquet(path)
    lines = open_text(path)
    first = lines.first_line()
    _refuse_empty(lines.name, bool(first))
    if ending in TAGGED_ENDINGS or (names and words_width(lines)):
        return _tagged(lines, names)
    if is_json(ending, first):
        return _json(lines, wanted)
    return _delimited(lines, wanted, names)


def is_json(ending: str, first_line: str) -> bool:
    """By the ending of the file, or by its content where that says nothing."""
    looks_so = first_line.lstrip().startswith(("{", "["))
    return ending in JSON_ENDINGS or (ending not in TEXT_ENDINGS and looks_so)


def is_table(path: Path) -> bool:
    """Whether the first lines of a file are rows, whatever its name says."""
    with path.open("rb") as stream:
        start = stream.read(2**16)
    is_binary = b"\0" in start and not start.startswith(UTF_16)
    if is_binary or b"\n" not in start:
        return False
    try:
        if words_width(open_text(path)):
            return True
        table = open_table(path)
        rows = list(islice(table.records(), 200))
    except DataError:
        return False
    return len(table.columns) > 1 and sum(bool(row.problem) for row in rows) <= 0.1 * len(rows)


def existing(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        return path
    folder = path if path.is_dir() else path.parent
    what = "is a folder" if path.is_dir() else "does not exist"
    files = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    known = nearest(path.name, files)
    raise DataError(f"data file {path} {what}; name a csv, tsv, jsonl or parquet file.{known}")


def _refuse_empty(source: str, has_rows: bool) -> None:
    if not has_rows:
        raise DataError(
            f"{source}: no rows; a data file needs a line of column names and at least one row; "
            "check that the export finished"
        )


def _delimited(lines: TextSource, wanted: Columns, names: Columns) -> DataTable:
    dialect = find_dialect(lines, wanted=wanted, names=names)
    start = dialect.split(lines.lines())
    columns = names or tuple(name.strip() for name in next(start)[1])
    _refuse_empty(lines.name, next(start, None) is not None or bool(names))
    for name in wanted:
        if columns.count(name) > 1:
            raise DataError(
                f"{lines.name}: column {name!r} occurs {columns.count(name)} times in the header "
                f"({', '.join(columns)}); a column that is used must occur once; rename the others"
            )

    def records() -> Iterator[RawRow]:
        rows = islice(dialect.split(lines.lines()), 0 if names else 1, None)
        for line, fields, problem in rows:
            is_ragged = len(fields) != len(columns)
            ragged = f"{len(fields)} fields instead of {len(columns)}" if is_ragged else ""
            values = zip(columns, map(str.strip, fields), strict=False)
            yield RawRow(line, dict.fromkeys(columns, "") | dict(values), problem or ragged)

    return DataTable(lines.name, columns, str(dialect), records, lines.count)


def _tagged(lines: TextSource, names: Columns) -> DataTable:
    """A word and its columns on each line, a blank line between texts (CoNLL)."""
    first = next((fields for _, fields in _word_lines(lines, len(names)) if fields), [])
    _refuse_empty(lines.name, bool(first))
    columns = names or tagged_names(len(first))

    def records() -> Iterator[RawRow]:
        words = _word_lines(lines, len(columns))
        for is_text, group in groupby(words, key=lambda line: bool(line[1])):
            if is_text:
                yield _tagged_row(list(group), columns)

    return DataTable(lines.name, columns, "CoNLL columns", records)


def tagged_names(width: int) -> Columns:
    """Names for the columns of words and tags."""
    between = (f"column{n}" for n in range(2, width))
    named = ("tokens", *between, "tags") if width > 1 else ("tokens",)
    return CONLL_U if width == len(CONLL_U) else named


def words_width(lines: TextSource) -> int:
    """The number of columns of a file with one word per line; 0 for another file.

    A blank line ends a text, and fields contain no white space.
    """
    sample = [fields for _, fields in islice(_word_lines(lines, 0), 1000)]
    words = [fields for fields in sample if fields]
    ends = sum(bool(after) and not before for before, after in pairwise(sample))
    is_spaced = sum(" " in field for fields in words for field in fields[:2]) > len(words) / 20
    is_texts = 0 < ends * 1.5 <= len(words) <= 200 * (ends + 1)
    widths = {len(fields) for fields in words}
    is_table = len(widths) == 1 and min(widths) > 1
    return min(widths) if is_table and is_texts and not is_spaced else 0


def _word_lines(lines: TextSource, width: int) -> Iterator[tuple[int, list[str]]]:
    """The columns of each word; none between texts.

    Comments are left out; `# O` of a file with `width` 2 is a word.
    """
    is_tabbed = any("\t" in line for line in islice(lines.lines(), 200))
    for number, line in enumerate(lines.lines(), start=1):
        content = line.rstrip("\r\n") if "\t" in line else line.strip()
        fields = content.split("\t" if is_tabbed else None)
        is_comment = content.startswith("# ") and len(fields) != width
        if content.startswith("-DOCSTART-"):
            yield number, []
        elif not (is_comment or NO_WORD.match(content)):
            yield number, fields if content.strip() else []


def _tagged_row(words: Sequence[tuple[int, list[str]]], columns: Columns) -> RawRow:
    problem = next(
        (
            f"{len(fields)} columns instead of {len(columns)} in line {number}"
            for number, fields in words
            if len(fields) != len(columns)
        ),
        "",
    )
    cells = zip(*(fields for _, fields in words), strict=not problem)
    values = {n: _as_words(cell) for n, cell in zip(columns, cells, strict=not problem)}
    return RawRow(words[0][0], dict.fromkeys(columns, "") | values, problem)


def _as_words(cells: Sequence[str]) -> str:
    """With blanks between, or a JSON list where a word has some itself."""
    is_plain = all(len(cell.split()) == 1 for cell in cells)
    return " ".join(cells) if is_plain else json.dumps(cells)


def _json(lines: TextSource, wanted: Columns) -> DataTable:
    is_list = lines.first_line().lstrip().startswith("[")
    key = "" if is_list else _list_key(lines)
    read = partial(_json_list, lines, key) if is_list or key else partial(_json_lines, lines)
    first = next((value for _, value in read() if isinstance(value, dict)), None)
    if first is None:
        raise DataError(
            f"{lines.name}: no JSON object found; allowed: one object per line, or one list of "
            'objects, also as {"data": [...]}; write lines like {"text": "...", "label": "..."}'
        )
    records = partial(_object_rows, read, columns := tuple(flat(first)), wanted or tuple(first))
    if is_list or key:
        form = f"the JSON list {key!r}" if key else "a JSON list"
        return DataTable(lines.name, columns, form, records)
    return DataTable(lines.name, columns, "JSON lines", records, lines.count)


def _json_lines(lines: TextSource) -> Objects:
    """Each line's value; None for a line that is not JSON."""
    for number, line in enumerate(lines.lines(), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None


def _list_key(lines: TextSource) -> str:
    """The key of the rows in a file that is one object around them; empty for other files."""
    first, *more = islice((line for line in lines.lines() if line.strip()), 2)
    if more and not first.rstrip().endswith(("{", "[", ",")):
        return ""  # a value on each line
    try:
        value = json.loads("".join(lines.lines()))
    except (ValueError, RecursionError):
        return ""
    parts = value.items() if isinstance(value, dict) else ()
    inner = {key: part for key, part in parts if isinstance(part, dict | list)}
    keys = [key for key, part in inner.items() if is_rows(part)]
    return keys[0] if len(inner) == len(keys) == 1 else ""


def is_rows(part: Any) -> bool:
    return bool(part) and isinstance(part, list) and all(isinstance(row, dict) for row in part)


def _json_list(lines: TextSource, key: str) -> Objects:
    """The objects of a list, which is the file or the value of this key."""
    try:
        value = json.loads("".join(lines.lines()))
        return enumerate(value[key] if key else value, start=1)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{lines.name}: not valid JSON: {error}; allowed: one list of objects, or one object "
            "per line; write the file again with a JSON library"
        ) from error


def flat(value: dict[str, Any]) -> dict[str, Any]:
    """The object, and under dotted names what its inner objects hold."""
    inner = {
        f"{name}.{key}": item
        for name, part in value.items()
        if isinstance(part, dict)
        for key, item in flat(part).items()
    }
    return value | inner


def row_table(source: str, rows: Sequence[dict[str, Any]], names: Columns = ()) -> DataTable:
    """A table of rows in memory; `names` are columns that it has even without rows."""
    columns = tuple(dict.fromkeys((*names, *(name for row in rows for name in flat(row)))))
    records = partial(_object_rows, partial(enumerate, rows, start=1), columns, ())
    return DataTable(source, columns, "rows in memory", records, lambda: len(rows))


def _object_rows(
    read: Callable[[], Objects], columns: Columns, needed: Columns
) -> Iterator[RawRow]:
    for number, value in read():
        values, problem = dict.fromkeys(columns, ""), "not a JSON object"
        if isinstance(value, dict):
            items = flat(value)
            values |= {name: _as_text(item) for name, item in items.items()}
            missing = (f"no {name!r}" for name in needed if name not in items)
            problem = next(missing, "")
            if (known := {name: whole(text) for name, text in values.items()}) != values:
                values, problem = known, problem or "half of a surrogate pair, read as ?"
        yield RawRow(number, values, problem)


def _as_text(value: Any) -> str:
    """A value as a csv file would hold it."""
    if isinstance(value, str):
        return value.strip()
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _parquet(path: Path) -> DataTable:
    from mops.data.parquet import describe, read_batches

    module, place = _library("pyarrow.parquet", str(path), "pyarrow"), path.absolute()
    names, count = describe(module, path)
    _refuse_empty(str(path), count > 0)
    first: Any = next(read_batches(module, path, 1))

    def read() -> Objects:
        return enumerate(chain.from_iterable(read_batches(module, place)), start=1)

    columns = tuple(dict.fromkeys((*names, *flat(first[0]))))
    records = partial(_object_rows, read, columns, names)
    return DataTable(str(path), columns, "parquet", records, lambda: count)


def _hub(source: str) -> DataTable:
    """`hub:NAME:SPLIT` or `hub:NAME:CONFIG:SPLIT`, through the `datasets` library."""
    *name, split = source.removeprefix(HUB).split(":")
    if len(name) not in (1, 2) or not all((*name, split)):
        raise DataError(
            f"{source!r} does not name a split of a hub data set; allowed: hub:NAME:SPLIT or "
            "hub:NAME:CONFIG:SPLIT; write for example hub:nyu-mll/glue:sst2:train"
        )
    datasets = _library("datasets", source, '"mops-nlp[hub]"')
    try:
        loaded = datasets.load_dataset(*name, split=split)
    except Exception as error:  # the library raises dozens of kinds: network, name, config, disk
        raise DataError(
            f"{source}: the data set could not be loaded: {_first_line(error)}; allowed: a public "
            "hub:NAME[:CONFIG]:SPLIT with a network; check the name or pass a local file"
        ) from error
    _refuse_empty(source, len(loaded) > 0)
    names = tuple(loaded.column_names)
    columns = tuple(dict.fromkeys((*names, *flat(loaded[0]))))
    records = partial(_object_rows, partial(enumerate, loaded, start=1), columns, names)
    return DataTable(source, columns, "hub data set", records, lambda: len(loaded))


def _library(name: str, source: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DataError(
            f"{source}: reading it needs {name}, which is not installed; csv, tsv and jsonl files "
            f"need nothing; run `pip install {package}`"
        ) from error


def _first_line(error: Exception) -> str:
    """The first line of a library's message, or the type of the error when it is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
