"""Opens any source as a table of records: csv, tsv, JSON, parquet, the hub, standard input."""

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

from mops.data.readers import TextSource, find_dialect, open_text
from mops.errors import DataError, nearest

HUB = "hub:"
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
WORD_ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2")  # one word per line
CONLL_U = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NO_WORD = re.compile(r"-DOCSTART-|\d+[-.]\d+\t")  # a document, a range of words or an empty one
COMMENT = "# "
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
    path = None if text == "-" else _existing(Path(source))
    ending = path.suffix.lower() if path else ""
    if path and ending == ".parquet":
        return _parquet(path)
    lines = open_text(path)
    first = lines.first_line()
    _refuse_empty(lines.name, bool(first))
    if ending in JSON_ENDINGS or (path is None and first.lstrip().startswith(("{", "["))):
        return _json(lines, wanted)
    if (names or ending in WORD_ENDINGS) and (width := words_width(lines)):
        return _sentences(lines, names or default_names(width))
    return _delimited(lines, wanted, names)


def _existing(path: Path) -> Path:
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


def words_width(lines: TextSource) -> int:
    """The number of columns of a file with one word per line; 0 for another file.

    A blank line ends a sentence, and no field contains white space.
    """
    sample = [line.rstrip("\r\n") for line in islice(lines.lines(), 1000)]
    lines_of_words = (line for line in sample if line.strip() and not line.startswith(COMMENT))
    words = [_word_fields(line) for line in lines_of_words if not NO_WORD.match(line)]
    ends = sum(not a.strip() and bool(b.strip()) for a, b in pairwise(sample))
    widths = {len(fields) for fields in words}
    is_spaced = sum(" " in field for fields in words for field in fields[:2]) > len(words) / 20
    is_sentences = 0 < ends * 1.5 <= len(words) <= 200 * (ends + 1)
    is_table = len(widths) == 1 and min(widths) > 1
    return min(widths) if is_table and is_sentences and not is_spaced else 0


def default_names(width: int) -> Columns:
    """Names for the columns of a file without a header line."""
    return CONLL_U if width == len(CONLL_U) else tuple(f"column{n + 1}" for n in range(width))


def _word_fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split()


def _sentences(lines: TextSource, names: Columns) -> DataTable:
    """One record per sentence; the words of a column are joined by spaces."""

    def is_word(line: str) -> bool:
        is_comment = line.startswith(COMMENT) and len(_word_fields(line)) != len(names)
        return not (is_comment or NO_WORD.match(line))

    def records() -> Iterator[RawRow]:
        numbered = enumerate((line.rstrip("\r\n") for line in lines.lines()), start=1)
        for is_blank, block in groupby(numbered, key=lambda item: not item[1].strip()):
            words = [(number, _word_fields(line)) for number, line in block if is_word(line)]
            if words and not is_blank:
                yield _sentence(words, names)

    return DataTable(lines.name, names, "one word per line", records)


def _sentence(words: list[tuple[int, list[str]]], names: Columns) -> RawRow:
    problem = ""
    for number, fields in words:
        if len(fields) != len(names):
            problem = f"line {number} has {len(fields)} fields instead of {len(names)}"
        elif not all(fields) or any(" " in field for field in fields[:2]):
            problem = f"line {number} has a field that is empty or contains white space"
    columns = zip_longest(*(fields for _, fields in words), fillvalue="")
    # Every field stays one word, so that the columns of a sentence keep as many.
    joined = (" ".join(field.replace(" ", "_") for field in column) for column in columns)
    values = dict(zip(names, joined, strict=False))
    return RawRow(words[0][0], dict.fromkeys(names, "") | values, problem)


def _json(lines: TextSource, wanted: Columns) -> DataTable:
    is_list = lines.first_line().lstrip().startswith("[")
    read = partial(_json_list if is_list else _json_lines, lines)
    first = next((value for _, value in read() if isinstance(value, dict)), None)
    if first is None:
        raise DataError(
            f"{lines.name}: no JSON object found; allowed: one object per line, or one list of "
            'objects; write lines like {"text": "...", "label": "..."}'
        )
    records = partial(_object_rows, read, columns := tuple(flat(first)), wanted or tuple(first))
    if is_list:
        return DataTable(lines.name, columns, "a JSON list", records)
    return DataTable(lines.name, columns, "JSON lines", records, lines.count)


def _json_lines(lines: TextSource) -> Objects:
    """Each line's value; None for a line that is not JSON."""
    for number, line in enumerate(lines.lines(), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError:
                yield number, None


def _json_list(lines: TextSource) -> Objects:
    try:
        return enumerate(json.loads("".join(lines.lines())), start=1)
    except ValueError as error:
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
        yield RawRow(number, values, problem)


def _as_text(value: Any) -> str:
    """A value as a csv file would hold it."""
    if isinstance(value, str):
        return value.strip()
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _parquet(path: Path) -> DataTable:
    parquet, place = _library("pyarrow.parquet", str(path), "pyarrow"), path.absolute()
    try:
        with parquet.ParquetFile(path) as file:
            names, count = tuple(file.schema_arrow.names), int(file.metadata.num_rows)
            first: Any = next((b.to_pylist() for b in file.iter_batches(batch_size=1)), [{}])
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(
            f"{path}: not a parquet file: {_first_line(error)}; allowed: csv, tsv, jsonl, parquet; "
            "rename it or export it again"
        ) from error
    _refuse_empty(str(path), count > 0)

    def read() -> Objects:
        with parquet.ParquetFile(place) as file:
            batches = (batch.to_pylist() for batch in file.iter_batches())
            yield from enumerate(chain.from_iterable(batches), start=1)

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
