"""Checks of names and sentences that a machine can make.

``python tests/unit/prose.py src/intarsia/io docs`` prints what is wrong in files and folders.
"""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

MOST_WORDS = 25
"""Words of a sentence. Code in backquotes is one word."""
MOST_CHARACTERS = 100
"""Characters of a line of Markdown, outside of tables and code."""
FIRST_WORDS = re.compile(r"(Of|What|Those|So many|Such|Whoever|Whatever)\b")
"""Sentences do not begin with these."""
VERB = re.compile(r"(True if|[A-Z][a-z]+s)\b")
"""A function's docstring begins with a verb in the third person, or with "True if".

Properties and commands, whose docstrings are their help, are left out. So are the functions in
folders called ``tests``: they describe a case.
"""
WORDS = re.compile(
    r"\b(rooms?|houses?|texts|sift\w*|survey\w*|whoever|whatever|so many|lease\w*|tall(?:y|ies)"
    r"|mend(?:s|ed|ing)?|spared|passed over|gone by|believed|told|asked of|(?:is|are|was) held to"
    r"|to be had|far storage|near storage|united)\b",
    re.IGNORECASE,
)
"""Words that the glossary replaces."""
NAMES = {"found", "held", "told", "asked", "wanted", "kept", "gone"}
"""Identifiers that do not say what they hold."""

_CODE = re.compile(r"``.+?``|`[^`]+`|\[([^\]]*)\]\([^)]*\)|https?://\S+", re.DOTALL)
_END = re.compile(r"(?<![ (.][a-z])(?<!e\.g)(?<!i\.e)[.!?:](?=\s|$)|\n\s*\n|\n\s*[-*] |\n\s*\d+\. ")
_SECTION = re.compile(r"^( *)[A-Z][A-Za-z ]+\n\1-{3,}\n", re.MULTILINE)
_PARAMETER = re.compile(r"^( *)\*{0,2}\w[\w, *]*(?: : .+)?$(?=\n\1    )", re.MULTILINE)


def problems_in(path):
    """Yields the line, the kind and the words of each problem in a file."""
    text = path.read_text()
    if path.suffix == ".md":
        yield from _in_markdown(text)
    else:
        yield from _in_python(text, is_test="tests" in path.resolve().parts)


def _in_markdown(text):
    prose, is_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        plain = not (is_code or is_fence or line.lstrip().startswith("|"))
        if plain and len(line) > MOST_CHARACTERS and not re.match(r"\s*\S+$", line):
            yield number, "long line", line[:60]
        prose.append(re.sub(r"^\s*#+ (.*)", r"\1.", line) if plain else "")
    yield from _in_prose("\n".join(prose), 1)


def _in_python(text, is_test):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for statement in body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    value = statement.value.value
                    if isinstance(value, str):
                        yield from _in_prose(value, statement.lineno)
                        is_summary = statement is body[0] and _is_function(node)
                        if is_summary and not is_test and not VERB.match(value):
                            yield statement.lineno, "no verb", value.splitlines()[0][:60]
        yield from _names(node)
    yield from _comments(text)


def _is_function(node):
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    decorators = " ".join(ast.unparse(one) for one in node.decorator_list)
    return not re.search(r"property|\.command|\.group", decorators)


def _names(node):
    names = []
    match node:
        case ast.Name(id, ast.Store()) | ast.arg(id):
            names = [id]
        case ast.Attribute(_, name, ast.Store()):
            names = [name.lstrip("_")]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            names = [name.lstrip("_")]
    for name in names:
        if name.lower() in NAMES:
            yield node.lineno, "name", name


def _comments(text):
    block, first, last = [], 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("# type:"):
            line = token.start[0]
            if line != last + 1:
                yield from _in_prose("\n".join(block), first)
                block, first = [], line
            block.append(token.string.lstrip("#: "))
            last = line
    yield from _in_prose("\n".join(block), first)


def _in_prose(text, first_line):
    text = re.sub(r"::\n\n?(?:[ ]*\n|[ ]{4,}.*\n?)+", ".\n\n", text)  # examples
    text = re.sub("\b\n(?:.+\n?)+", "\n", text)  # preformatted help of commands
    text = re.sub(r"^ *(?:>>>|\.\.\.).*\n?", "", text, flags=re.MULTILINE)
    text = _PARAMETER.sub("\n", _SECTION.sub("\n", text))
    plain = _CODE.sub(lambda match: (match.group(1) or "X") + "\n" * match[0].count("\n"), text)
    start = 0
    for end in [*_END.finditer(plain), None]:
        stop = end.start() if end else len(plain)
        sentence = plain[start:stop].strip()
        begin = stop - len(plain[start:stop].lstrip())
        line = first_line + plain.count("\n", 0, begin)
        count = len(re.findall(r"[\w'’-]+", sentence))
        if count > MOST_WORDS:
            yield line, f"{count} words", sentence[:60]
        if FIRST_WORDS.match(sentence):
            yield line, "first word", sentence[:60]
        if end and end[0] == "?":
            yield line, "question", sentence[:60]
        for word in WORDS.finditer(sentence):
            yield line, "word", word[0]
        start = end.end() if end else stop


def files_in(place):
    """The Python and Markdown files at a path."""
    if place.is_file():
        return [place]
    return sorted(path for path in place.rglob("*") if path.suffix in (".py", ".md"))


if __name__ == "__main__":
    found_problems = [
        (path, *problem)
        for place in sys.argv[1:]
        for path in files_in(Path(place))
        for problem in problems_in(path)
    ]
    for path, line, kind, words in found_problems:
        print(f"{path}:{line}: {kind}: {' '.join(words.split())}")
    sys.exit(bool(found_problems))
