# Prints `file:line:text` for each line that holds prose: of Markdown what is no code, of sources comments,
# strings of several words, and the names in the code as words. `¶` stands where a doc comment begins, `§`
# before the names of a line. Read by scripts/words.sh.

FNR == 1 {
    markdown = FILENAME ~ /\.md$/
    rust = FILENAME ~ /\.rs$/
    python = FILENAME ~ /\.py$/
    # The beginning of a string or of a comment.
    start = rust ? "r#+\"|\"|//" : python ? "\"|#" : "\"|(^|[ \t])#"
    open = ""; in_doc = 0; fence = 0; written = 0
}

function emit(text) {
    gsub(/`[^`]*`/, "`", text)
    gsub(/\]\([^)]*\)/, "]", text)
    if (text ~ /[A-Za-z]/) print FILENAME ":" FNR ":" text
}

function emit_string(text) {
    if (text ~ /[a-z],? [a-z]/) emit(text)
}

# Emits the names of a piece of code: `is_refused` as `is refused`, `BadPlace` as `bad place`.
function emit_names(code,    name, names) {
    while (match(code, /[A-Za-z_][A-Za-z0-9_]*/)) {
        name = substr(code, RSTART, RLENGTH)
        code = substr(code, RSTART + RLENGTH)
        if (name ~ /^is_none(_or)?$/) continue
        gsub(/_/, " ", name)
        while (match(name, /[a-z0-9][A-Z]/)) name = substr(name, 1, RSTART) " " substr(name, RSTART + 1)
        names = names "; " tolower(name)
    }
    if (names != "") print FILENAME ":" FNR ":§" substr(names, 2)
}

# The strings of a line of code, the comment behind it, and the names outside of both.
function strings(line,    found, code) {
    if (rust) gsub(/'(\\.|[^'\\])'/, "'", line)
    while (match(line, start)) {
        found = substr(line, RSTART, RLENGTH)
        code = code " " substr(line, 1, RSTART - 1)
        line = substr(line, RSTART + RLENGTH)
        if (found !~ /"/) { emit(line); line = ""; break }
        open = found ~ /^r/ ? "\"" substr(found, 2, length(found) - 2) : "\""
        line = string_end(line)
    }
    if (rust || python) emit_names(code " " line)
}

# Emits the open string up to its end, and returns what follows; without an end the string goes on.
function string_end(line,    at) {
    at = open == "\"" ? match(line, /^([^"\\]|\\.)*"/) * RLENGTH : index(line, open) + length(open) - 1
    if (at < length(open)) {
        emit_string(line)
        if (!rust && !python) open = ""
        return ""
    }
    emit_string(substr(line, 1, at - length(open)))
    line = substr(line, at + 1)
    open = ""
    return line
}

# Markdown: neither blocks of code nor the parts that programs write.
markdown && /^ *```/ { fence = !fence; next }
markdown && /^<!-- ((help|reasons|race):|.*end -->)/ { written = !/end -->/; next }
markdown { if (!fence && !written && !/^<!--/) emit($0); next }

{
    line = $0
    sub(/^[ \t]+/, "", line)
    if (python) gsub(/"""/, "\"", line)
    if (open != "") line = string_end(line)
    if (rust && line ~ /^\/\/[\/!]/) {
        line = substr(line, 4)
        sub(/^ /, "", line)
        emit((in_doc ? "" : "¶") line)
        in_doc = 1
        next
    }
    in_doc = 0
    if (line !~ /^#!/ && open == "") strings(line)
}
