"""Formats `.gq` texts in one layout. Only comments, numbers and strings stay as the user wrote them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from omnigraph.query.language.parse import parse_queries, parser

WIDTH = 100
_INDENT = "  "
_SKIPPED = re.compile(r'"(?:\\.|[^"\\\r\n])*"|(//[^\n]*|/\*(?:.|\n)*?\*/)')


def format_queries(source: str, file: str = "<query>") -> str:
    """The text in its one layout; formatting twice changes nothing. Raises `ParseError` for a text that has errors."""
    parse_queries(source, file)
    text = source.removeprefix("\ufeff")
    out = _QueryFormatter(text)
    queries: list[Any] = list(parser().parse(text).children)
    for index, query in enumerate(queries):
        if index:
            out.blank(query.meta.start_pos)
        _query(out, query)
    out.comments(len(text))
    return out.text()


class _QueryFormatter:
    """Collects the formatted lines. Each line knows where its content ends in the source, which places the comments."""

    def __init__(self, source: str) -> None:
        self._source = source
        comments = [match for match in _SKIPPED.finditer(source) if match.group(1)]
        self._spans = [match.span() for match in comments]
        self._waiting = [(match.start(), match.end(), match.group(1).rstrip()) for match in comments]
        self._lines: list[str] = []
        self._last = 0
        self._depth = 0
        self._fresh = True  # at the start of the text or of a block: no blank line here
        self._closed = True  # nothing to put a trailing comment behind

    def text(self) -> str:
        return "\n".join(self._lines) + "\n" if self._lines else ""

    def line(self, start: int, end: int, text: str) -> None:
        """A line that stands for source[start:end]; comments before it come first."""
        self.comments(start)
        self._gap(start)
        self._lines.append(_INDENT * self._depth + text)
        self._last, self._fresh, self._closed = end, False, False

    def open(self, start: int, end: int, text: str) -> None:
        self.line(start, end, text)
        self._depth += 1
        self._fresh = True

    def close(self, start: int, end: int | None = None, tail: str = "") -> None:
        """The closing brace, and what follows it on its line."""
        self.comments(start)
        self._depth -= 1
        self._fresh = True
        self.line(start, end or start + 1, "}" + tail)

    def blank(self, before: int) -> None:
        """Add a blank line between two queries, after a comment that trails the last line."""
        self._trailing(before)
        self._lines.append("")
        self._fresh = True

    def comments(self, before: int) -> None:
        """Write the comments that begin before this offset."""
        self._trailing(before)
        while self._waiting and self._waiting[0][0] < before:
            start, end, text = self._waiting.pop(0)
            self._gap(start)
            self._lines.append(_INDENT * self._depth + text)
            self._last, self._fresh, self._closed = max(end, self._last), False, True

    def _trailing(self, before: int) -> None:
        """A comment on the line where the last content ended, and before the next one, stays behind it."""
        if self._closed or not self._waiting or self._waiting[0][0] >= before:
            return
        start, end, text = self._waiting[0]
        if "\n" not in text and "\n" not in self._source[min(self._last, start) : start]:
            self._waiting.pop(0)
            self._lines[-1] += "  " + text
            self._last = max(end, self._last)
        self._closed = True

    def _gap(self, start: int) -> None:
        """Keep one blank line if the source has blank lines before `start`."""
        if not self._fresh and self._source[self._last : start].count("\n") > 1:
            self._lines.append("")

    def brace_after(self, at: int) -> int:
        """The offset after the next `{` that is not in a comment."""
        return self._after("{", at)

    def closing_after(self, at: int) -> int:
        """The offset after the next `}` that is not in a comment."""
        return self._after("}", at)

    def _after(self, char: str, at: int) -> int:
        while True:
            at = self._source.index(char, at) + 1
            if not any(start < at <= end for start, end in self._spans):
                return at

    def has_comment(self, start: int, end: int) -> bool:
        return any(start <= comment_start < end for comment_start, _ in self._spans)


# ---- blocks ----------------------------------------------------------------------------------------------------------


def _query(out: _QueryFormatter, node: Any) -> None:
    name, params, *annotations, body = node.children
    head = f"query {name}({_list(params)})"
    if annotations:
        head += "\n" + "\n".join(_INDENT + _text(annotation) for annotation in annotations)
    before = annotations[-1].meta.end_pos if annotations else params.meta.end_pos if params else name.end_pos
    out.open(node.meta.start_pos, out.brace_after(before), head + " {")
    if body.data == "mutation":
        for statement in body.children:
            _statement(out, statement)
    else:
        _read(out, body)
    out.close(node.meta.end_pos - 1)


def _read(out: _QueryFormatter, node: Any) -> None:
    match, returns, order, limit, offset = node.children
    _block(out, match, "match")
    _row(out, returns, "return", returns.children)
    if order is not None:
        _row(out, order, "order", order.children)
    for word, part in (("limit", limit), ("offset", offset)):
        if part is not None:
            out.line(part.meta.start_pos, part.meta.end_pos, f"{word} {part.children[0]}")


def _block(out: _QueryFormatter, node: Any, word: str) -> None:
    out.open(node.meta.start_pos, out.brace_after(node.meta.start_pos), word + " {")
    for clause in (child for child in node.children if hasattr(child, "data")):
        if clause.data in {"not_block", "optional_block"}:
            _block(out, clause, "not" if clause.data == "not_block" else "optional")
        else:
            out.line(clause.meta.start_pos, clause.meta.end_pos, _text(clause))
    out.close(node.meta.end_pos - 1)


def _row(
    out: _QueryFormatter, node: Any, head: str, items: list[Any], tail: str = "", inner_end: int | None = None
) -> None:
    """`head { a, b }` on one line if it fits and holds no comment, else one item per line."""
    start, end = node.meta.start_pos, inner_end or node.meta.end_pos
    texts = [_text(item) for item in items]
    line = f"{head} {{ {', '.join(texts)} }}" if texts else f"{head} {{}}"
    if len(line + tail) + len(_INDENT) <= WIDTH and not out.has_comment(start, end):
        out.line(start, node.meta.end_pos, line + tail)
        return
    out.open(start, out.brace_after(start), head + " {")
    for index, (item, text) in enumerate(zip(items, texts, strict=True)):
        out.line(item.meta.start_pos, item.meta.end_pos, text + ("," if index < len(items) - 1 else ""))
    out.close(end - 1, node.meta.end_pos, tail)


def _statement(out: _QueryFormatter, node: Any) -> None:
    name, *parts = node.children
    if node.data == "delete":
        out.line(node.meta.start_pos, node.meta.end_pos, f"delete {_text(name)} where {_text(parts[-1])}")
        return
    pairs = [part for part in parts if part.data == "pair"]
    if node.data == "insert":
        _row(out, node, f"insert {_text(name)}", pairs)
        return
    inner_end = out.closing_after(pairs[-1].meta.end_pos)
    _row(out, node, f"update {_text(name)} set", pairs, f" where {_text(parts[-1])}", inner_end)


# ---- texts -----------------------------------------------------------------------------------------------------------


def _list(node: Any) -> str:
    return "" if node is None else ", ".join(_text(child) for child in node.children)


def _join(parts: Iterable[Any], by: str = " ") -> str:
    return by.join(_text(part) if hasattr(part, "data") else str(part) for part in parts if part is not None)


def _binding(node: Any) -> str:
    variable, kind, inline = node.children
    pairs = [] if inline is None else [pair for pair in inline.children if pair is not None]
    return f"{variable}: {kind}" + (f" {{ {_join(pairs, ', ')} }}" if pairs else "")


def _hop(node: Any) -> str:
    *before, edge, bounds, right = node.children
    start = str(before[0]) if len(before) == 1 else f"{before[0]} {before[1]}:"
    word = re.sub(r"\s", "", str(edge.children[0]))
    return f"{start} {word}{'' if bounds is None else _text(bounds)} {right}"


def _word_hop(node: Any) -> str:
    start, word, bounds, right = node.children
    return f"{_text(start)} {word}{'' if bounds is None else _text(bounds)} {right}"


def _call(node: Any) -> str:
    name, distinct, *arguments = node.children
    return f"{name}({'' if distinct is None else 'distinct '}{_join(arguments, ', ')})"


def _projection(node: Any) -> str:
    distinct, value, alias = node.children
    return _join([distinct, value]) + ("" if alias is None else f" as {alias}")


def _condition(node: Any, by: str) -> str:
    parts = [
        f"({_text(part)})" if part.data == "disjunction" and len(part.children) > 1 else _text(part)
        for part in node.children
    ]
    return by.join(parts)


def _annotation(node: Any) -> str:
    name, *arguments = node.children
    present = [argument for argument in arguments if argument is not None]
    return f"@{name}({_join(present, ', ')})" if present else f"@{name}"


_TEXTS: dict[str, Callable[[Any], str]] = {
    "param": lambda node: f"{node.children[0]}: {_text(node.children[1])}",
    "param_type": lambda node: _join(node.children, ""),
    "list_type": lambda node: f"[{node.children[0]}]",
    "vector_type": lambda node: f"{node.children[0]}({node.children[1]})",
    "annotation": _annotation,
    "annotation_named": lambda node: f"{node.children[0]}={_text(node.children[1])}",
    "range": lambda node: _join(node.children, ""),
    "binding": _binding,
    "traversal": _hop,
    "edge_traversal": _hop,
    "word_traversal": _word_hop,
    "bounds": lambda node: f"{{{node.children[0]},{node.children[1] or ''}}}",
    "any_of": lambda node: f"({_join(node.children, ' or ')})",
    "pair": lambda node: f"{node.children[0]}: {_text(node.children[1])}",
    "property": lambda node: _join(node.children, "."),
    "list_literal": lambda node: f"[{_join(node.children, ', ')}]",
    "call": _call,
    "named_argument": lambda node: f"{node.children[0]}={_text(node.children[1])}",
    "projection": _projection,
    "disjunction": lambda node: _condition(node, " or "),
    "conjunction": lambda node: _condition(node, " and "),
}


def _text(node: Any) -> str:
    """The node on one line; rules not listed are their parts with a space between."""
    return _TEXTS.get(str(node.data), lambda unlisted: _join(unlisted.children))(node)
