# Prints `file:line:text` for each line that holds prose: of Markdown what is no code, of sources comments
# and strings of several words. `¶` stands where a doc comment begins. Read by scripts/words.sh.

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

# The strings of a line of code, and the comment behind it.
function strings(line,    found) {
    if (rust) gsub(/'(\\.|[^'\\])'/, "'", line)
    while (match(line, start)) {
        found = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (found !~ /"/) { emit(line); return }
        open = found ~ /^r/ ? "\"" substr(found, 2, length(found) - 2) : "\""
        line = string_end(line)
    }
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
