package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/listener-operator/listener-operator/internal/message"
)

// maxPrinted is the length of the longest text from an object that is printed, in bytes.
const maxPrinted = 4096

// Printable returns a text from objects as a terminal may show it.
func Printable(s string) string { return message.Printable(s, maxPrinted) }

// WriteError writes the error of a command.
func WriteError(out io.Writer, err error) {
	// Advice on how to call a command has several lines.
	lines := strings.Split("error: "+err.Error(), "\n")
	for i := range lines {
		fmt.Fprintln(out, Printable(strings.ReplaceAll(lines[i], "\t", "  ")))
	}
}
