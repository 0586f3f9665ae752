# Prints each comment line of a Go file, and each line of a Markdown page, that is wider than 120 columns, and fails if
# there is one. Directives, lines with a URL, tables, code blocks and the targets of links do not count.
#
# It counts bytes that begin a character, so it must run with LC_ALL=C.
FNR == 1 { code = 0 }
FILENAME ~ /\.md$/ && /^ *(```|~~~)/ { code = !code }
FILENAME ~ /\.md$/ && (code || /^ *\|/) { next }
FILENAME ~ /\.go$/ && (!/^\t*\/\// || /^\t*\/\/ ?\+/ || /^\t*\/\/(go:|nolint)/) { next }
/https?:\/\// { next }
{
	line = $0
	if (FILENAME ~ /\.md$/) gsub(/\]\([^ ]*\)/, "]", line)
	gsub(/\t/, "    ", line)
	gsub(/[\200-\277]/, "", line)
	if (length(line) > 120) { printf "%s:%d: wider than 120 columns\n", FILENAME, FNR; wide = 1 }
}
END { exit wide }
