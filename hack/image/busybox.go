package image

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
)

// Busybox returns the spec of an image with a shell and common tools, from a static busybox on this machine.
func Busybox(ctx context.Context, binary string) (Spec, error) {
	list, err := exec.CommandContext(ctx, binary, "--list").Output()
	if err != nil {
		return Spec{}, fmt.Errorf("listing the applets of busybox: %w", err)
	}
	links := map[string]string{}
	for applet := range strings.FieldsSeq(string(list)) {
		if applet != "busybox" {
			links["/bin/"+applet] = "busybox"
		}
	}
	return Spec{
		Files: map[string]File{
			"/bin/busybox": {Source: binary, Mode: 0o755},
			"/etc/passwd":  {Content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
			"/etc/group":   {Content: []byte("root:x:0:\nnobody:x:65534:\n")},
		},
		Dirs:  map[string]fs.FileMode{"/tmp": 0o777 | fs.ModeSticky, "/root": 0o700},
		Links: links,
		Cmd:   []string{"sh"},
	}, nil
}
