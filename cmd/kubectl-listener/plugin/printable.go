package plugin

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/listener-operator/listener-operator/internal/message"
)

// maxPrinted is the length of the longest text from an object that is printed, in bytes.
const maxPrinted = 4096

// printable returns a text from objects as a terminal may show it: in one line, with escapes in place of characters
// that are not printed, such as those of control sequences, and not longer than maxPrinted. Users of the cluster choose
// such texts, and administrators look at them.
func printable(s string) string {
	var b strings.Builder
	for len(s) > 0 && b.Len() <= maxPrinted {
		r, size := utf8.DecodeRuneInString(s)
		switch quoted := strconv.Quote(s[:size]); {
		case unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			b.WriteString(s[:size])
		default:
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return message.Truncate(b.String(), maxPrinted)
}

// WriteError writes the error of a command.
func WriteError(out io.Writer, err error) {
	// Advice on how to call a command has several lines.
	lines := strings.Split("error: "+err.Error(), "\n")
	for i := range lines {
		fmt.Fprintln(out, printable(strings.ReplaceAll(lines[i], "\t", "  ")))
	}
}
