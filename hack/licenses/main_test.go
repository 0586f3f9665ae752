package main

import (
	"bytes"
	"encoding/csv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// root is the root of the repository.
const root = "../.."

// Short licenses.
const (
	mit = `Copyright (c) 2026 The authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"),
to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense,
and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
IN THE SOFTWARE.
`
	isc = `Copyright (c) 2026 The authors

Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF
MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES
WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN
CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
`
	agpl = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU Affero General Public License as published by
the Free Software Foundation, either version 3 of the License, or (at your option) any later version.
`
)

// source returns a module with the files, and with linked packages.
func source(t *testing.T, files map[string]string, packages ...string) *module {
	t.Helper()
	m := &module{Path: "example.org/m", Version: "v1.2.3", Dir: t.TempDir(), packages: map[string]bool{}}
	for name, content := range files {
		path := filepath.Join(m.Dir, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	for _, name := range packages {
		m.packages[filepath.Join(m.Dir, name)] = true
	}
	return m
}

func TestLicensesOfLinkedPackagesAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		files      map[string]string
		packages   []string
		expression string
		want       []string
	}{
		"a license": {
			files: map[string]string{"LICENSE": mit, "README.md": "x", "license.go": "package m"}, packages: []string{"."},
			expression: "MIT", want: []string{"LICENSE"},
		},
		"under other names": {
			files:      map[string]string{"COPYING": mit, "License.txt": isc, "notice.md": "x", "PATENTS": "y"},
			expression: "ISC AND MIT", want: []string{"COPYING", "License.txt", "PATENTS", "notice.md"},
		},
		"two in one file": {
			files:      map[string]string{"LICENCE": mit + "\n" + isc},
			expression: "ISC AND MIT", want: []string{"LICENCE"},
		},
		"a part under another one": {
			files:    map[string]string{"LICENSE": mit, "third_party/LICENSE": isc, "third_party/NOTICE": "x", "third_party/copied/code/code.go": "package code"},
			packages: []string{"third_party/copied/code"}, expression: "ISC AND MIT", want: []string{"LICENSE", "third_party/LICENSE", "third_party/NOTICE"},
		},
		"a part under the same one": {
			files:    map[string]string{"LICENSE": mit, "a/LICENSE": mit},
			packages: []string{"a"}, expression: "MIT", want: []string{"LICENSE"},
		},
		"a part that is not linked": {
			files:    map[string]string{"LICENSE": mit, "a/LICENSE": agpl, "b/b.go": "package b"},
			packages: []string{"b"}, expression: "MIT", want: []string{"LICENSE"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := source(t, tc.files, tc.packages...).license()
			check.Must(t, err)
			if got.Expression != tc.expression {
				t.Errorf("license is %s, want %s", got.Expression, tc.expression)
			}
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(got.Files))); diff != "" {
				t.Error(diff)
			}
			for name, content := range got.Files {
				if string(content) != tc.files[name] {
					t.Errorf("%s is not as in the module", name)
				}
			}
		})
	}
}

func TestModuleWithoutAllowedLicenseIsRejected(t *testing.T) {
	for name, tc := range map[string]struct {
		files    map[string]string
		packages []string
		want     []string
	}{
		"no license":                    {files: map[string]string{"README.md": mit, "NOTICE": "x"}, want: []string{"no license"}},
		"an unknown license":            {files: map[string]string{"LICENSE": "All rights reserved, and then some."}, want: []string{"LICENSE", "0%"}},
		"additional terms":              {files: map[string]string{"LICENSE": mit + strings.Repeat("You owe us a beer. ", 30)}, want: []string{"LICENSE", "only"}},
		"the name of a license":         {files: map[string]string{"LICENSE": "https://www.apache.org/licenses/LICENSE-2.0"}, want: []string{"LICENSE", "name of one"}},
		"a license that is not allowed": {files: map[string]string{"LICENSE": agpl}, want: []string{"LICENSE", "AGPL-3.0"}},
		"a part with a license that is not allowed": {
			files: map[string]string{"LICENSE": mit, "a/LICENSE": agpl}, packages: []string{"a/b"}, want: []string{"a/LICENSE", "AGPL-3.0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range tc.packages {
				tc.files[p+"/code.go"] = "package code"
			}
			_, err := source(t, tc.files, tc.packages...).license()
			if err == nil {
				t.Fatal("the module was accepted")
			}
			for _, want := range append(tc.want, "example.org/m@v1.2.3") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
		})
	}
}

func TestErrorNamesEveryRejectedModule(t *testing.T) {
	var modules []*module
	for path, license := range map[string]string{"example.org/none": "", "example.org/good": mit, "example.org/bad": agpl} {
		m := source(t, map[string]string{"LICENSE": license})
		m.Path = path
		modules = append(modules, m)
	}
	_, err := licenses(modules)
	if err == nil || !strings.Contains(err.Error(), "/none@") || !strings.Contains(err.Error(), "/bad@") || strings.Contains(err.Error(), "/good@") {
		t.Errorf("error %v, want one that names two modules", err)
	}
}

func TestModuleReplacedByADirectoryIsRejected(t *testing.T) {
	checkout := source(t, map[string]string{
		"LICENSE": mit, "main.go": "package main\n\nimport _ \"example.org/dep\"\n\nfunc main() {}\n",
		"go.mod":      "module example.org/m\n\ngo 1.26.0\n\nrequire example.org/dep v1.0.0\n\nreplace example.org/dep => ./dep\n",
		"dep/go.mod":  "module example.org/dep\n\ngo 1.26.0\n",
		"dep/dep.go":  "package dep\n",
		"dep/LICENSE": mit,
	})
	output := filepath.Join(t.TempDir(), "licenses")
	if err := run(t.Context(), checkout.Dir, output, linux, []string{"."}); err == nil || !strings.Contains(err.Error(), "./dep") {
		t.Errorf("error %v, want one that names the directory", err)
	}
	if _, err := os.Stat(output); err == nil {
		t.Error("licenses were written")
	}
}

func TestLicensesOfTheOperatorAreCollected(t *testing.T) {
	output := t.TempDir()
	stale := filepath.Join(output, "modules/gone@v1.0.0/LICENSE")
	check.Must(t, os.MkdirAll(filepath.Dir(stale), 0o700))
	check.Must(t, os.WriteFile(stale, nil, 0o600))
	t.Chdir(root)
	if err := run(t.Context(), ".", output, linux, []string{"./cmd/operator", "./cmd/node-agent"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("the directory of a module that is no longer linked was not removed")
	}
	own, err := os.ReadFile("LICENSE")
	check.Must(t, err)
	if got, err := os.ReadFile(filepath.Join(output, "LICENSE")); err != nil || !bytes.Equal(got, own) || len(got) == 0 {
		t.Errorf("LICENSE is not the operator's: %v", err)
	}
	table, err := os.ReadFile(filepath.Join(output, "modules.csv"))
	check.Must(t, err)
	rows, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	check.Must(t, err)
	licenses := map[string]string{}
	for _, row := range rows[1:] {
		licenses[row[0]] = row[2]
		if files, err := filepath.Glob(filepath.Join(output, "modules", row[0]+"@"+row[1], "*")); err != nil || len(files) == 0 {
			t.Errorf("%s has no license file: %v", row[0], err)
		}
	}
	for path, want := range map[string]string{
		"stdlib":                         "BSD-3-Clause",
		"k8s.io/client-go":               "Apache-2.0",
		"k8s.io/apimachinery":            "Apache-2.0 AND BSD-3-Clause", // of files from Go
		"sigs.k8s.io/yaml":               "Apache-2.0 AND BSD-3-Clause AND MIT",
		"github.com/google/licensecheck": "", // not linked
		"github.com/listener-operator/listener-operator": "", // the module itself
	} {
		if licenses[path] != want {
			t.Errorf("license of %s is %q, want %q", path, licenses[path], want)
		}
	}
	for _, name := range []string{"stdlib@*/PATENTS", "google.golang.org/grpc@*/NOTICE.txt"} {
		if files, _ := filepath.Glob(filepath.Join(output, "modules", name)); len(files) != 1 {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestPackagesAreRequired(t *testing.T) {
	if err := run(t.Context(), root, t.TempDir(), linux, nil); err == nil {
		t.Error("no error without packages")
	}
}

// linux are the platforms of images.
var linux = []string{"linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"}

func TestLicensesAreThoseOfThePlatforms(t *testing.T) {
	t.Chdir("../..")
	for platform, want := range map[string]bool{"linux/amd64": false, "windows/amd64": true} {
		modules, err := linked(t.Context(), "cmd/kubectl-listener", []string{platform}, []string{"."})
		check.Must(t, err)
		const ofWindows = "github.com/Azure/go-ansiterm"
		if got := slices.ContainsFunc(modules, func(m *module) bool { return m.Path == ofWindows }); got != want {
			t.Errorf("%s: %s is linked: %v", platform, ofWindows, got)
		}
	}
	if _, err := linked(t.Context(), ".", []string{"linux"}, []string{"."}); err == nil {
		t.Error("a platform without an architecture is accepted")
	}
}
