#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Manual pages (section 3) from the public headers.

usage: headers.py DIRECTORY VERSION HEADER...

A header's text from one comment to the next is a group: the calls in it share
a page, which has the comment, the declarations and the types that these name;
the first call names the page, the others are .so files. A page verbena_HEADER
has the header's first comment, all its calls, and the types that no call's
group has. Calls without a comment are an error.
"""
import os
import re
import sys

SYMBOL = r"\bvbn_\w+"
CALL = r"^(?!typedef)[a-z][^;{}()]*?(vbn_\w+)\("


class Group:
    """A comment, and the declarations up to the next one."""

    def __init__(self, header, comment, code):
        self.header = header
        self.comment = comment
        # Without what only the compiler needs.
        code = re.sub(r'^extern "C" \{$|^\}$(?=\n#endif)|^#(?!define).*$', "",
                      code, flags=re.M)
        code = re.sub(r"^#define (VBN_API|VERBENA_\w+_H)\b.*$", "", code,
                      flags=re.M)
        code = re.sub(r"^static inline ([^{;]*)\{.*?^\}$", inline, code,
                      flags=re.M | re.S)
        code = code.replace("VBN_API ", "")
        self.code = realign(re.sub(r"\n{3,}", "\n\n", code).strip("\n"))
        self.calls = re.findall(CALL, self.code, re.M)
        # For other pages.
        self.definitions = re.sub(CALL + r"[^;]*;\n?|^struct \w+;\n?", "",
                                  self.code, flags=re.M).strip("\n")
        self.types = re.findall(
            r"^(?:struct|enum) (vbn_\w+) \{|^typedef [^;(]*?(vbn_\w+)\(",
            self.code, re.M)
        self.types = [a or b for a, b in self.types]


def inline(match):
    return match.group(1).rstrip() + ";"


def realign(code):
    """Continued declarations, whose first line has lost a word."""
    lines = []
    column = None
    for line in code.split("\n"):
        line = line.expandtabs(8)
        if column is not None:
            line = " " * column + line.strip()
        elif re.match(r"[a-z].*\w\(", line) and not line.endswith(";"):
            column = line.index("(") + 1
        if line.endswith(";"):
            column = None
        lines.append(line.rstrip())
    return "\n".join(lines)


def comment_lines(text):
    text = re.sub(r"^/\*+[ \n]|\s*\*/$", "", text)
    return [re.sub(r"^ \* ?", "", line).rstrip() for line in
            text.split("\n")]


def groups_of(header, text):
    """The header's own comment, and its groups."""
    parts = re.split(r"^(/\*.*?\*/)$", text, flags=re.M | re.S)
    comments = parts[1::2]
    codes = parts[2::2]
    if len(comments) < 2 or "SPDX" not in comments[0]:
        sys.exit(f"headers.py: {header}: want a licence and a comment on top")
    groups = []
    for comment, code in zip(comments[1:], codes[1:]):
        lines = comment_lines(comment)
        if any(re.match(r"---- .* ----$", line) for line in lines):
            lines = []
        groups.append(Group(header, lines, code))
    overview = groups[0].comment
    groups[0].comment = []
    for group in groups:
        if group.calls and not group.comment:
            sys.exit(f"headers.py: {header}: {group.calls[0]}() has no "
                     "comment")
    return overview, groups


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def words(text):
    """Running text, with names set off."""
    text = escape(text)
    text = re.sub(r"@(\w+)", r"\\fI\1\\fR", text)
    return re.sub(r"\b(vbn_\w+)\(\)", r"\\fB\1\\fR()", text)


def paragraph(lines):
    """Text, items with a dash, and tables, which keep their shape."""
    table = r"\w+: " if re.match(r"\w+: ", lines[0]) and any(
        line.startswith("  ") for line in lines) else r"  +\S"
    out = []
    state = "text"
    for line in lines:
        if table != r"  +\S" or (state != "item" and re.match(table, line)):
            out += [".nf"] if state != "table" else []
            state = "table"
        elif line.startswith("- "):
            out += [".fi"] if state == "table" else []
            out.append(".IP \\(bu 2")
            line = line[2:]
            state = "item"
        elif state == "table":
            out.append(".fi")
            state = "text"
        out.append(words(line if state == "table" else line.strip()))
    return out + [".fi"] if state == "table" else out


def paragraphs(lines):
    out = []
    for text in re.split(r"\n\n+", "\n".join(lines).strip("\n")):
        if text:
            out += [".PP"] + paragraph(text.split("\n"))
    return out[1:]


def verbatim(code):
    return [".nf", ".ft B"] + [escape(line) for line in
                               code.split("\n")] + [".ft", ".fi"]


def brief(lines):
    """The first sentence, on one line."""
    text = " ".join(line.strip() for line in lines)
    text = re.split(r"(?<=[\w)])\.(?: |$)", text)[0].replace("@", "")
    text = re.match(r"[^(;]*(?:\([^)]*\)[^(;]*)*", text).group(0)
    if len(text) > 90:
        text = text[:90].rsplit(" ", 1)[0] + " ..."
    if re.match(r"[A-Z][a-z]", text):
        text = text[0].lower() + text[1:]
    return escape(text.rstrip())


def title(name, version):
    return ['.\\" Made from the header by headers.py.',
            f'.TH {name} 3 "" "Verbena {version}" "Verbena"']


def named_types(code, types, known):
    """Those that @code names, and those that these name."""
    found = []
    for name in re.findall(SYMBOL, code):
        if name in types and name not in known:
            known.add(name)
            found.append(types[name])
            found += named_types(types[name].definitions, types, known)
    return found


def type_section(groups):
    out = []
    for group in groups:
        out += [".PP"] + verbatim(group.definitions) + [".PP"]
        out += paragraphs(group.comment)
    return [".SH TYPES"] + out if out else []


def see_also(names):
    return [".SH SEE ALSO"] + [f".BR {name} ({section}){end}"
                               for (name, section), end in
                               zip(names, [","] * (len(names) - 1) + [""])]


def page_of(group, types, version, near):
    """The page of one group of calls."""
    own = set(group.types)
    needs = named_types(group.code, types, own)
    unique = list(dict.fromkeys(needs))
    out = title(group.calls[0], version)
    out += [".SH NAME",
            ", ".join(group.calls) + " \\- " + brief(group.comment)]
    out += [".SH LIBRARY",
            "Verbena (libverbena; \\fBpkg\\-config \\-\\-cflags "
            "\\-\\-libs verbena\\fR)"]
    out += [".SH SYNOPSIS", ".nf",
            f"\\fB#include <verbena/{group.header}.h>\\fR", ".fi", ".PP"]
    out += verbatim(group.code)
    out += [".SH DESCRIPTION"] + paragraphs(group.comment)
    out += type_section(unique)
    if re.search(r"^int " + SYMBOL, group.code, re.M):
        out += [".SH RETURN VALUE",
                "Calls that return int give 0 or a negative errno value, "
                "unless stated otherwise above; \\fBvbn_error\\fR() then "
                "has one line for people."]
    return out + see_also(near)


def overview_of(header, comment, groups, version):
    out = title("verbena_" + header, version)
    out += [".SH NAME",
            f"verbena_{header} \\- " + brief(comment)]
    out += [".SH SYNOPSIS", ".nf",
            f"\\fB#include <verbena/{header}.h>\\fR", ".fi"]
    out += [".SH DESCRIPTION"] + paragraphs(comment)
    out.append(".SH CALLS")
    for group in groups:
        if group.calls:
            out += [".TP", ", ".join(f"\\fB{call}\\fR(3)" for call in
                                     group.calls), brief(group.comment)]
    rest = [g for g in groups if not g.calls and g.definitions]
    out += type_section(rest)
    return out + see_also([("verbena-run", 1), ("verbena-info", 1)])


def write(directory, name, lines):
    with open(os.path.join(directory, name + ".3"), "w",
              encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def alias(directory, names, page):
    for name in names:
        if name != page:
            write(directory, name, [f".so man3/{page}.3"])


def main():
    if len(sys.argv) < 4:
        sys.exit("usage: headers.py DIRECTORY VERSION HEADER...")
    directory, version = sys.argv[1:3]
    os.makedirs(directory, exist_ok=True)
    for old in os.listdir(directory):
        os.unlink(os.path.join(directory, old))
    headers = []
    types = {}
    for path in sys.argv[3:]:
        header = os.path.basename(path)[:-2]
        with open(path, encoding="utf-8") as file:
            headers.append((header, *groups_of(header, file.read())))
    for _, _, groups in headers:
        for group in groups:
            types.update(dict.fromkeys(group.types, group))
    for header, comment, groups in headers:
        write(directory, "verbena_" + header,
              overview_of(header, comment, groups, version))
        pages = [g for g in groups if g.calls]
        for i, group in enumerate(pages):
            near = [(g.calls[0], 3) for g in pages[max(0, i - 2):i + 3]
                    if g is not group] + [("verbena_" + header, 3)]
            write(directory, group.calls[0],
                  page_of(group, types, version, near))
            alias(directory, group.calls + group.types, group.calls[0])
        for group in groups:
            if not group.calls:
                alias(directory, group.types, "verbena_" + header)


if __name__ == "__main__":
    main()
