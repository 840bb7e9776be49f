"""Read YAML that a user wrote: bounded in size, depth and what its aliases expand to, and without repeated keys."""

from __future__ import annotations

import codecs
from typing import Any

import yaml

from sgoif.errors import UserError

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000  # keys, values, lists and mappings, each alias counted as what it stands for; shipped: at most 1,173
MAX_DEPTH = 32
MARKS = {  # the longer ones first: the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def parse_yaml(data: bytes, where: str) -> Any:
    """Parse one YAML document.

    Args:
        data: UTF-8, with or without a byte-order mark.
        where: Name of the file, for messages.

    Returns:
        Its value; None for an empty document.

    Raises:
        UserError: If it is too large, not UTF-8 or no valid YAML, repeats a key, or contains itself.
    """
    if len(data) > MAX_BYTES:
        raise UserError(f"{where} is larger than {MAX_BYTES // 1024} KiB, which no configuration needs")
    text = _decode(data, where)
    try:
        return _Loader(text, where).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as e:  # ValueError: an impossible date, say
        raise UserError(f"{where} is not valid YAML: {' '.join(str(e).split())[:300]}") from None


def _decode(data: bytes, where: str) -> str:
    for mark, name in MARKS.items():
        if data.startswith(mark):
            raise UserError(f"{where} is {name}, which Snakemake does not read; save it as UTF-8")
    if b"\0" in data:
        raise UserError(f"{where} holds zero bytes: it is UTF-16 or no text at all; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise UserError(f"{where} is not valid YAML: byte {e.start} is not UTF-8; save it as UTF-8") from None


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which counts what a document expands to while it is composed, before it is constructed."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self.where = where
        self.nodes = 0  # so far, with aliases expanded
        self.depth = 0  # of the node that is being composed
        self.deepest = 0  # below the node that is being composed, with aliases expanded
        self.extents: dict[int, tuple[int, int]] = {}  # id of a finished node -> nodes and levels that it stands for

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node and count it."""
        line = self.peek_event().start_mark.line + 1
        alias = self.check_event(yaml.AliasEvent)
        before, above = self.nodes, self.deepest
        self.depth += 1
        self.deepest = self.depth
        self.nodes += 0 if alias else 1
        self._check_bounds(line)
        node = super().compose_node(parent, index)
        if alias:
            if id(node) not in self.extents:
                raise UserError(f"{self.where}, line {line}: a value contains itself")
            nodes, levels = self.extents[id(node)]
            self.nodes += nodes
            self.deepest = self.depth + levels
            self._check_bounds(line)
        else:
            self.extents[id(node)] = self.nodes - before, self.deepest - self.depth
        self.deepest = max(above, self.deepest)
        self.depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping and refuse a key that it has twice."""
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                first = lines[key.value]
                raise UserError(f"{self.where}: the key {key.value!r} is there twice, in lines {first} and {line}")
            lines[key.value] = line
        return node

    def _check_bounds(self, line: int) -> None:
        if self.deepest > MAX_DEPTH:
            raise UserError(f"{self.where}, line {line}: more than {MAX_DEPTH} levels deep")
        if self.nodes > MAX_NODES:
            raise UserError(f"{self.where}, line {line}: more than {MAX_NODES} values, counting what aliases stand for")
