"""A form that was refused comes back: its page again, with what was typed and with what is wrong beside the field."""

import re
from collections.abc import Mapping
from html import escape
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from baobab.tools.core.errors import BaobabError, Forbidden
from baobab.tools.core.guard.escaping import escape_text

PAGE_FIELD = "of_page"
"""The hidden field of a returned form that says where its page is: the address of the answer is that of the form."""
_UNKEPT = frozenset({"csrf", PAGE_FIELD})
_GROUP = re.compile(r"^(?:string|input|value|list|dictionary|number)\b", re.IGNORECASE)
_PATTERN = re.compile(r" and match '.*'$| match pattern '.*'$", re.DOTALL)


def return_form(html: str, action: str, typed: Mapping[str, str], error: BaobabError, page: str) -> str | None:
    """Returns a page with one of its forms as it was sent, and with the error in it; None if the form is not there.

    html: the page. action: the path to which the form was sent. typed: its fields. page: the page's address.
    """
    tree = LexborHTMLParser(html)
    form = next((form for form in tree.css("form") if _is_sent_to(form, action) and _is_of(form, typed)), None)
    if form is None:
        return None
    controls = [node for node in form.css("input, textarea, select") if node.attributes.get("name")]
    for control in controls:
        _restore(control, typed)
    problems = _say_at_fields(error)
    for control in controls:
        if problem := problems.pop(str(control.attributes["name"]), None):
            _mark(control, problem, is_first=not tree.css("[autofocus]"))
    # What no field of the form has is said above it.
    if problems or not tree.css("[aria-invalid]"):
        sentences = " ".join(problems.values()) or f"{error.message} {say_remedy(error)}".strip()
        focus = "" if tree.css("[autofocus]") else " autofocus"
        _insert_first(form, f'<p class="callout bad problem" role="alert" tabindex="-1"{focus}>{_show(sentences)}</p>')
    _insert_first(form, f'<input type="hidden" name="{PAGE_FIELD}" value="{escape(page)}">')
    _open(form)
    if title := tree.css_first("title"):
        title.inner_html = f"Not saved: {title.inner_html}"
    return str(tree.html)


def say_remedy(error: BaobabError) -> str:
    """Returns what a person can do about an error: without advice for programs."""
    if isinstance(error, Forbidden) and error.remedy == Forbidden.remediation:
        return "Ask an owner or an admin of the organisation."
    # What a program should send is no help for a person, who has the form.
    is_of_program = error.status == 400 and error.remedy == type(error).remediation
    return "" if is_of_program else error.remedy.replace("`", "")


def list_typed(typed: Mapping[str, str]) -> dict[str, str]:
    """Returns what somebody typed, for the page of an error that cannot show the form again."""
    secret = re.compile("password|secret|credential|key|token|code", re.IGNORECASE)
    return {name: text for name, text in typed.items() if text and name not in _UNKEPT and not secret.search(name)}


def _say_at_fields(error: BaobabError) -> dict[str, str]:
    """Returns what is wrong with each field, by its name; the first part of a path is the field of the form."""
    problems: dict[str, str] = {}
    for fault in error.details.get("fields") or ():
        if isinstance(fault, Mapping) and "field" in fault:
            problem = _GROUP.sub("It", _PATTERN.sub("", str(fault.get("problem", ""))).strip()) or error.message
            problems.setdefault(str(fault["field"]).partition(".")[0], problem.rstrip(".") + ".")
    return problems


def _is_sent_to(form: LexborNode, action: str) -> bool:
    targets = [form.attributes.get("action"), *(node.attributes.get("formaction") for node in form.css("button"))]
    return action in targets


def _is_of(form: LexborNode, typed: Mapping[str, str]) -> bool:
    """Returns whether it is this form, where a page has one for each organisation."""
    organisation = form.css_first('input[type="hidden"][name="of"]')
    return organisation is None or typed.get("of") in (None, organisation.attributes.get("value"))


def _restore(control: LexborNode, typed: Mapping[str, str]) -> None:
    name, kind = str(control.attributes["name"]), control.attributes.get("type")
    if name in _UNKEPT or kind in ("password", "file"):
        return
    if control.tag == "textarea":
        # A browser drops the first line break.
        control.inner_html = "\n" + escape(typed.get(name, ""))
    elif control.tag == "select":
        for option in control.css("option"):
            value = option.attributes.get("value")
            _set(option, "selected", typed.get(name) == (option.text() if value is None else value))
    elif kind in ("checkbox", "radio"):
        _set(control, "checked", typed.get(name) == control.attributes.get("value", "on"))
    elif name in typed:
        control.attrs["value"] = typed[name]


def _set(node: LexborNode, attribute: str, is_set: bool) -> None:
    if is_set:
        node.attrs[attribute] = ""
    elif attribute in node.attributes:
        del node.attrs[attribute]


def _mark(control: LexborNode, problem: str, *, is_first: bool) -> None:
    error_id = f"{control.attributes.get('id') or control.attributes['name']}-error"
    described_by = f"{control.attributes.get('aria-describedby') or ''} {error_id}".strip()
    control.attrs["aria-invalid"], control.attrs["aria-describedby"] = "true", described_by
    if is_first:
        control.attrs["autofocus"] = ""
    control.insert_after(_parse(f'<span class="field-error" id="{escape(error_id)}">{_show(problem)}</span>'))


def _open(node: LexborNode) -> None:
    """Opens the parts of the page that the form stands in."""
    parent: Any = node.parent
    while parent is not None:
        if parent.tag == "details":
            parent.attrs["open"] = ""
        parent = parent.parent


def _insert_first(form: LexborNode, html: str) -> None:
    if form.first_child is None:
        form.inner_html = html
    else:
        form.first_child.insert_before(_parse(html))


def _parse(html: str) -> LexborNode:
    node = LexborHTMLParser(html).css_first("body > *")
    assert node is not None
    return node


def _show(text: str) -> str:
    """Escapes a sentence for people: messages name fields in backticks."""
    sentence = escape(escape_text(text.replace("`", "")))
    return sentence[:1].upper() + sentence[1:]
