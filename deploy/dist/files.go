package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is a file of the archive and of the packages.
type file struct {
	name   string // in the archive; empty: not there
	to     string // in packages; empty: not there
	toRPM  string // in RPM packages, if it is another place
	data   []byte
	packed []byte // in packages, if they have it compressed
	mode   int64
	config bool // people change it, so an upgrade keeps it
}

const docFolder = "/usr/share/doc/triphammer"

// shipped are the files of the repository that are installed.
func (d *dist) shipped() ([]file, error) {
	var files []file
	for _, s := range []file{
		{name: "systemd/triphammer.service", to: "/usr/lib/systemd/system/triphammer.service"},
		{name: "systemd/triphammer.sysusers", to: "/usr/lib/sysusers.d/triphammer.conf"},
		{name: "systemd/sealing-key.conf", to: docFolder + "/examples/sealing-key.conf"},
		{name: "systemd/config.yaml", to: "/etc/triphammer/config.yaml", config: true},
		{name: "compose/compose.yaml", to: docFolder + "/examples/compose.yaml"},
		{name: "compose/compose.postgres.yaml", to: docFolder + "/examples/compose.postgres.yaml"},
		{name: "prometheus/triphammer.rules.yaml", to: docFolder + "/examples/triphammer.rules.yaml"},
		{name: "grafana/triphammer.json", to: docFolder + "/examples/grafana.json"},
	} {
		data, err := os.ReadFile(filepath.Join(d.root, "deploy", filepath.FromSlash(s.name)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("deploy/%s is missing", s.name)
		} else if err != nil {
			return nil, err
		}
		s.data, s.mode = data, 0o644
		files = append(files, s)
	}
	copyright, err := os.ReadFile(filepath.Join(d.root, "deploy/packages/copyright"))
	if err != nil {
		return nil, err
	}
	files = append(files, file{to: docFolder + "/copyright", data: copyright, mode: 0o644})
	for _, pattern := range []string{"README.md", "CHANGELOG.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(d.root, pattern))
		if err != nil {
			return nil, err
		}
		for _, from := range found {
			data, err := os.ReadFile(from)
			if err != nil {
				return nil, err
			}
			rel, err := filepath.Rel(d.root, from)
			if err != nil {
				return nil, err
			}
			rel = filepath.ToSlash(rel)
			files = append(files, file{name: rel, to: docFolder + "/" + rel, data: data, mode: 0o644})
		}
	}
	return files, nil
}

// chart are the files of the Helm chart, for images of this version.
func (d *dist) chart() ([]file, error) {
	root := os.DirFS(filepath.Join(d.root, "deploy/helm/triphammer"))
	var files []file
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if name == "Chart.yaml" {
			data = fmt.Appendf(data, "appVersion: %q\n", d.version)
		}
		files = append(files, file{name: name, data: data, mode: 0o644})
		return err
	})
	return files, err
}

// archive writes a tar.gz with one folder, which holds everything.
func (d *dist) archive(w io.Writer, folder string, files []file) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(packed)
	sorted := slices.Clone(files)
	sorted = slices.DeleteFunc(sorted, func(f file) bool { return f.name == "" })
	slices.SortFunc(sorted, func(a, b file) int { return strings.Compare(a.name, b.name) })
	folders := make(map[string]bool)
	for _, f := range sorted {
		name := folder + "/" + f.name
		if err := d.tarFolders(t, folders, path.Dir(name)); err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: f.mode, Size: int64(len(f.data)), ModTime: d.time, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), packed.Close())
}

// tarFolders adds a folder and those above it, each once.
func (d *dist) tarFolders(t *tar.Writer, there map[string]bool, name string) error {
	if name == "." || name == "/" || there[name] {
		return nil
	}
	if err := d.tarFolders(t, there, path.Dir(name)); err != nil {
		return err
	}
	there[name] = true
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: d.time, Format: tar.FormatPAX})
}

// gzipped compresses without a name and a time.
func gzipped(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
