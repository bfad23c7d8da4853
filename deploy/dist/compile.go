package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// program is a built triphammer.
type program struct {
	path string
	data []byte
}

// compilers are the C compilers of Debian for the machines that are not the building one.
var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// compile builds the program with the C library in it, so that it runs on every Linux. An
// empty arch is the building machine.
func (d *dist) compile(ctx context.Context, arch, to string) (program, error) {
	tags, err := output(ctx, d.root, nil, "make", "--silent", "--no-print-directory", "tags")
	if err != nil {
		return program{}, err
	}
	env := []string{"CGO_ENABLED=1", "GOFLAGS=", "GOOS=linux"}
	if arch == "" {
		arch = runtime.GOARCH
	}
	env = append(env, "GOARCH="+arch)
	if arch != runtime.GOARCH {
		cc, ok := compilers[arch]
		if !ok {
			return program{}, fmt.Errorf("no compiler is known for %s", arch)
		}
		env = append(env, "CC="+cc)
	}
	if _, err := output(ctx, d.root, env, "make", "--silent", "--no-print-directory", "supervisor"); err != nil {
		return program{}, err
	}
	// The C library warns of what would need its shared form. The tags leave out all of it.
	_, err = output(ctx, d.root, env, "go", "build", "-trimpath", "-buildvcs=false", "-tags", tags,
		"-ldflags", "-s -w -X main.version="+d.version+" -extldflags -static", "-o", to, "./cmd/triphammer")
	if err != nil {
		return program{}, err
	}
	data, err := os.ReadFile(to)
	return program{to, data}, err
}

// generate lets the program write its own manual pages and completions.
func (d *dist) generate(ctx context.Context, native program) ([]file, error) {
	var files []file
	man := filepath.Join(d.work, "man")
	if _, err := output(ctx, d.work, nil, native.path, "man", man, "--date", d.time.Format("2006-01-02")); err != nil {
		return nil, err
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		data, err := os.ReadFile(filepath.Join(man, page.Name()))
		if err != nil {
			return nil, err
		}
		packed, err := gzipped(data)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "man/" + page.Name(), data: data, mode: 0o644, to: "/usr/share/man/man1/" + page.Name() + ".gz", packed: packed})
	}
	for _, c := range []struct{ shell, name, to string }{
		{"bash", "completions/triphammer.bash", "/usr/share/bash-completion/completions/triphammer"},
		{"zsh", "completions/_triphammer", "/usr/share/zsh/vendor-completions/_triphammer"},
		{"fish", "completions/triphammer.fish", "/usr/share/fish/vendor_completions.d/triphammer.fish"},
	} {
		text, err := output(ctx, d.work, nil, native.path, "completion", c.shell)
		if err != nil {
			return nil, err
		}
		one := file{name: c.name, data: []byte(text + "\n"), mode: 0o644, to: c.to}
		if c.shell == "zsh" {
			one.toRPM = "/usr/share/zsh/site-functions/_triphammer"
		}
		files = append(files, one)
	}
	return files, nil
}

// packageVersion is a version that package managers order as people do. A commit without a
// tag comes before every release, and after the commits before it.
func (d *dist) packageVersion() string {
	v, ok := strings.CutPrefix(d.version, "v")
	if !ok || v == "" || v[0] < '0' || v[0] > '9' {
		return "0~" + d.time.Format("20060102150405") + "." + clean(d.version)
	}
	release, rest, more := strings.Cut(v, "-")
	for more && rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, "-")
		// v1.2.0-rc.1 comes before v1.2.0, and v1.2.0-5-gabc after it.
		separator := "+"
		if strings.Trim(part, "0123456789") != "" && !isCommit(part) && part != "dirty" && !strings.Contains(release, "+") {
			separator = "~"
		}
		release += separator + clean(part)
	}
	return release
}

func isCommit(part string) bool {
	hash, ok := strings.CutPrefix(part, "g")
	return ok && len(hash) >= 7 && strings.Trim(hash, "0123456789abcdef") == ""
}

// clean leaves what a version of a package may have.
func clean(text string) string {
	keep := func(r rune) rune {
		if slices.Contains([]rune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ."), r) {
			return r
		}
		return '.'
	}
	return strings.Map(keep, text)
}
