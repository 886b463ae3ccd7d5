"""Typesets the equations of docstrings as HTML, without JavaScript."""

import html
import re

GREEK = {
    **{"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε"},
    **{"xi": "ξ", "lambda": "λ", "mu": "μ", "pi": "π", "rho": "ρ"},
    **{"sigma": "σ", "tau": "τ", "theta": "θ", "phi": "φ", "psi": "ψ"},
    **{"omega": "ω", "Gamma": "Γ", "Phi": "Φ"},
}
SIGNS = {
    **{"<-": "←", "->": "→", "<=": "≤", ">=": "≥", "!=": "≠", "||": "‖"},
    **{" (x) ": " ⊗ ", "...": "…", "~": "∼", "-": "−", "'": "′", "*": "·"},
}
LARGE = {"sum": "∑", "prod": "∏", "integral": "∫", "sqrt": "√", "grad": "∇"}
NUMBER = re.compile(r"\s+\((\d+)\)$")
# A name with words on both sides of `_`, such as `step_size`, has no index.
NAME = re.compile(r"(?!sum_|prod_|\w+hat_)(?:[A-Za-z]{3,}|kl)(_[a-z]{2,})+\b")
TOKEN = re.compile(
    r" \(x\) |<-|->|<=|>=|!=|\|\||\.\.\.|\d+(?:\.\d+)?(?:e-?\d+)?"
    r"|[A-Za-z]-(?:hat|th)|w\*|[A-Za-z]+\d?|\s+|."
)


def is_equation(block: str) -> bool:
    """Returns whether an indented block of a docstring holds equations."""
    if "keras_bdl" in block or "`" in block:
        return False
    lines = block.splitlines()
    return any(NUMBER.search(x) or re.search(" (=|<-|~) ", x) for x in lines)


def typeset(block: str) -> str:
    """Returns HTML with one row for each line and numbers at the right.

    Args:
        block: Lines such as `sigma^2 = tau / (rho N)    (1)`.
    """
    lines = block.splitlines()
    margin = min(len(x) - len(x.lstrip()) for x in lines if x.strip())
    rows = []
    for line in filter(str.strip, lines):
        number = NUMBER.search(line)
        text = NUMBER.sub("", line)[margin:].rstrip()
        indent = len(text) - len(text.lstrip())
        label = f"<b>({number[1]})</b>" if number else ""
        rows.append(
            f'<div><span style="margin-left:{indent / 2}em">'
            f"{_line(text.lstrip())}</span>{label}</div>"
        )
    return f'<div class="equations">{"".join(rows)}</div>'


def _line(text):
    """Returns the HTML of one line without its number."""
    out, at = [], 0
    while at < len(text):
        if text[at] in "_^" and at:
            sign, above = text[at], out and out[-1] in ("∑", "∏")
            script, at = _script(text, at + 1, strip=sign == "^" or above)
            tag = {"_": "sub", "^": "sup"}[sign]
            short = re.fullmatch("[a-z]{1,3}", script)
            inside = f"<i>{script}</i>" if short else _line(script)
            out.append(f"<{tag}>{inside}</{tag}>")
            continue
        name = NAME.match(text, at)
        if name and name[0].split("_")[0] not in GREEK:
            out.append(f"<code>{name[0]}</code>")
            at = name.end()
            continue
        token = TOKEN.match(text, at)[0]
        at += len(token)
        if text[at : at + 4] == "_hat":
            token, at = token + "hat", at + 4
        if token in ("sum", "prod") and text[at : at + 1] == " ":
            out.append(token)  # "the sum over" is a word
        else:
            out.append(_token(token))
    return "".join(out)


def _script(text, start, *, strip):
    """Returns an index or exponent of the text and where it ends."""
    closing = {"(": ")", "{": "}"}.get(text[start])
    if closing is None:
        # `f_v_new` has two indices; those of `w_s,` end before the comma.
        found = re.compile(r"-?\w+?(?=[_^]|\b)|-?\w+|.").match(text, start)
        return found[0], found.end()
    depth, end = 1, start + 1
    while depth:
        depth += (text[end] == text[start]) - (text[end] == closing)
        end += 1
    inner = text[start + 1 : end - 1]
    brace = strip or closing == "}"
    return (inner if brace else text[start:end]), end


def _token(token):
    """Returns the HTML of a word, a number, a sign or spaces."""
    if token.isspace():
        return " " if len(token) == 1 else "&emsp;"
    if token in SIGNS or token in LARGE:
        return SIGNS.get(token) or LARGE[token]
    if token == "w*":
        return "<i>w</i><sup>∗</sup>"
    if re.fullmatch(r"\w+-?hat", token):
        return f"<i>{token.removesuffix('hat').rstrip('-')}\u0302</i>"
    if token in GREEK:
        return f"<i>{GREEK[token]}</i>"
    if token[:1] == "d" and token[1:] in GREEK:
        return f"<i>d{GREEK[token[1:]]}</i>"
    if re.fullmatch(r"[A-Za-z]|d[A-Za-z]", token):
        return f"<i>{token}</i>"
    if re.fullmatch(r"[A-Za-z]\d", token):
        return f"<i>{token[0]}</i><sub>{token[1]}</sub>"
    return html.escape(token)
