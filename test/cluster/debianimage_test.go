package cluster

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"testing"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestFilesOfAPackageAreThoseOfTheImage(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, header := range []tar.Header{
		{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./bin/tool", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 1},
		{Name: "./bin/same", Typeflag: tar.TypeLink, Linkname: "./bin/tool"},
		{Name: "./lib64/ld.so", Typeflag: tar.TypeSymlink, Linkname: "/lib/x/ld.so"},
		{Name: "./usr/lib/a", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1},
		{Name: "./var/spool/", Typeflag: tar.TypeDir, Mode: 0o1777},
	} {
		check.Must(t, w.WriteHeader(&header))
		if header.Size > 0 {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	check.Must(t, w.Close())
	got := image.Spec{Files: map[string]image.File{}, Dirs: map[string]fs.FileMode{}, Links: map[string]string{"/bin": "usr/bin"}}
	check.Must(t, addArchive(&got, &archive))
	want := image.Spec{
		Files: map[string]image.File{
			"/usr/bin/tool": {Content: []byte("x"), Mode: 0o755 | fs.ModeSetuid},
			"/usr/bin/same": {Content: []byte("x"), Mode: 0o755 | fs.ModeSetuid},
			"/usr/lib/a":    {Content: []byte("x"), Mode: 0o644},
		},
		Dirs:  map[string]fs.FileMode{"/var/spool": 0o777 | fs.ModeSticky},
		Links: map[string]string{"/bin": "usr/bin", "/usr/lib64/ld.so": "/lib/x/ld.so"},
	}
	check.Equal(t, "spec", want, got)
}
